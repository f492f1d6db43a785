"""Folders of exported models to compiled models."""
