"""The server, of all dialects. One thread runs the models; request handlers read its output.

Needs the extra `[serve]`, which no other package imports.
"""
