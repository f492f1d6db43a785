"""A server with OpenAI's interface. One thread runs the models; handlers read what it publishes.

Needs the extra `[serve]`, which is imported here alone.
"""
