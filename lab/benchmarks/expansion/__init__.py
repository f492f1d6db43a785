"""A cost-expanded main: a model widened and deepened to a real one's cost, its function kept."""
