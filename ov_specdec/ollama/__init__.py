"""Ollama's interface: its requests, and answers as JSON objects of a line each."""
