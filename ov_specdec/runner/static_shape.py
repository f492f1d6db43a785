"""A model compiled for one number of tokens, and runners that take it up."""

from dataclasses import dataclass
from typing import Any, Protocol

from ov_specdec.runner.base import Runner


@dataclass(frozen=True)
class StaticShape:
    """A model compiled for passes over `size` tokens and no others. compiled: OpenVINO's."""

    size: int
    compiled: Any


class ShapedRunner(Runner, Protocol):
    """A runner that takes up static shapes while it is in use."""

    def add_static(self, shape: StaticShape) -> None:
        """Run passes over so many tokens by this static shape from now on."""
        ...

    def drop_static(self, size: int) -> None:
        """Run passes over so many tokens by the dynamic model again."""
        ...
