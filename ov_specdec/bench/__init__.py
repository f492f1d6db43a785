"""The benchmark: plain decoding and ways to speculate, in turns, with one pair on one machine."""
