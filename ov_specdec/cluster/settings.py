"""The number of replicas, with its descriptions for the command line. Needs no Ray."""

from typing import Any

from pydantic import model_validator
from typing_extensions import Self

from ov_specdec.errors import OptionError
from ov_specdec.options.model import Options, option


class Cluster(Options):
    """Replicas under Ray Serve; raises `OptionError` for values that contradict each other."""

    replicas: int | None = option(
        None,
        "Number of replicas of the models under Ray Serve, each on exclusive CPUs.",
        ge=1,
        unset="one process, without Ray",
        group="Replicas",
    )
    autoscale: tuple[int, int] | None = option(
        None,
        "Scale the number of replicas with the load.",
        unset="constant, --replicas",
        metavar="MIN:MAX",
    )
    address: str | None = option(
        None,
        "Ray cluster of the replicas: auto or HOST:PORT.",
        unset="starts one on this machine",
        metavar="ADDRESS",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.is_used and self.address is not None:
            raise OptionError(
                f"--address '{self.address}' has no effect without --replicas: give both"
            )
        low, high = self.bounds
        if not low <= self.number <= high:
            raise OptionError(f"--replicas {self.number} must be within --autoscale {low}:{high}")
        return self

    @property
    def is_used(self) -> bool:
        """Whether there are replicas, instead of one process."""
        return self.replicas is not None or self.autoscale is not None

    @property
    def bounds(self) -> tuple[int, int]:
        """Minimum and maximum number of replicas."""
        return self.autoscale or (self.replicas or 1, self.replicas or 1)

    @property
    def number(self) -> int:
        """The number of replicas at the start."""
        return self.replicas or self.bounds[0]

    def scale(self) -> dict[str, Any]:
        """As arguments of `ClusterArgs`."""
        low, high = self.bounds
        scale = {"min_replicas": low, "initial_replicas": self.number, "max_replicas": high}
        return {"replicas": self.number, "autoscale": scale if self.autoscale else None}
