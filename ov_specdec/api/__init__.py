"""What all interfaces over HTTP share: how bodies are read, and answers and errors made of results.

No sockets here: the server and the batch command both build on it.
"""
