"""Folders of exported models to compiled models, and checks that their passes agree."""
