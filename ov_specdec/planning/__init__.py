"""Plans draft lengths from the cost of passes and the acceptance of draft tokens."""
