"""OpenAI's interface as pure functions: parse its requests, and make its answers from results.

No sockets here: the server and the batch command both build on it.
"""
