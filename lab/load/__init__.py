"""Many clients of a server at once, well-behaved and hostile ones."""
