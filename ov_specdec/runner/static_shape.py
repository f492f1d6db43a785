"""`StaticShape`: a model compiled for one number of tokens in a pass, and runners that use it."""

from dataclasses import dataclass
from typing import Any, Protocol

from ov_specdec.runner.base import Runner


@dataclass(frozen=True)
class StaticShape:
    """A model compiled for passes over exactly `size` tokens."""

    size: int
    compiled: Any


class ShapedRunner(Runner, Protocol):
    """A runner that can add static shapes during use."""

    def add_static(self, shape: StaticShape) -> None:
        """Run passes over this number of tokens with the static shape from now on."""
        ...

    def drop_static(self, size: int) -> None:
        """Run passes over this number of tokens with the dynamic model again."""
        ...
