"""KV caches: a compiled model together with the cache of one sequence."""
