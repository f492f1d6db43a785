"""Times plain against speculative decoding, in interleaved runs, and finds what is fastest."""
