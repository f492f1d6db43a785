"""Files that the package keeps from one process to the next."""
