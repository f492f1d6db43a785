"""Compiled models and the KV caches of their sequences."""
