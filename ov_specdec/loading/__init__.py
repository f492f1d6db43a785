"""Loads model folders into compiled models."""
