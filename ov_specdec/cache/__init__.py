"""Which blocks of a paged KV cache hold which tokens."""
