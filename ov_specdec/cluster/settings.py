"""The number of replicas, with its descriptions for the command line. Needs no Ray."""

from dataclasses import dataclass
from typing import Annotated, Any

from ov_specdec.description import About, check_described
from ov_specdec.errors import OptionError


@dataclass(frozen=True)
class Cluster:
    """Replicas under Ray Serve; raises `OptionError` for values that contradict each other."""

    replicas: Annotated[
        int | None,
        About(
            "Number of replicas of the models under Ray Serve, each on exclusive CPUs.",
            low=1,
            unset="one process, without Ray",
        ),
    ] = None
    autoscale: Annotated[
        tuple[int, int] | None,
        About(
            "Scale the number of replicas with the load.",
            unset="constant, --replicas",
            metavar="MIN:MAX",
        ),
    ] = None
    address: Annotated[
        str | None,
        About(
            "Ray cluster of the replicas: auto or HOST:PORT.",
            unset="starts one on this machine",
            metavar="ADDRESS",
        ),
    ] = None

    def __post_init__(self) -> None:
        check_described(self)
        if not self.is_used and self.address is not None:
            raise OptionError(
                f"--address '{self.address}' has no effect without --replicas: give both"
            )
        low, high = self.bounds
        if not low <= self.number <= high:
            raise OptionError(f"--replicas {self.number} must be within --autoscale {low}:{high}")

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
