"""From a model folder to a compiled model."""
