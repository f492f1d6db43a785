"""Changes to a model's graph: paging, products, keys, positions, attention, vocabulary."""
