"""From logits to tokens: processors, warpers, distributions, samplers."""
