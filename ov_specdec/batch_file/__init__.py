"""Answers a file of requests into a file of results, in OpenAI's batch format."""
