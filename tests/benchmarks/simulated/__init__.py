"""Machines and texts without a clock, so that a run gives the same figures each time."""
