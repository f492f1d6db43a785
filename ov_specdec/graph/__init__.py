"""Changes to a model's graph: paging, products, attention."""
