"""Bookkeeping of KV caches: slots, blocks, states and prefixes. No tensors here."""
