"""Bookkeeping of the blocks of a paged KV cache."""
