"""The benchmark: interleaved runs of plain and speculative decoding with one pair."""
