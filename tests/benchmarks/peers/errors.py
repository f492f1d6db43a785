"""What keeps a method from being measured."""

from ov_specdec.errors import SpecdecError


class BenchmarkError(SpecdecError):
    """A method that cannot run on this machine or with these models."""
