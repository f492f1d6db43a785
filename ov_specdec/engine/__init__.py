"""Runs many sequences together: scheduler, steps, and the threads that run them."""
