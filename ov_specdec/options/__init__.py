"""Options: what users may give, what is wrong with a value, and the words that describe it."""
