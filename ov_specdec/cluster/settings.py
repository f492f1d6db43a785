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
        low, high = self.autoscale or (1, self.replicas or 1)
        if not self.scale and self.address is not None:
            raise OptionError(
                f"--address '{self.address}' has no effect without --replicas: give both"
            )
        if not low <= (first := self.replicas or low) <= high:
            raise OptionError(f"--replicas {first} must be within --autoscale {low}:{high}")
        return self

    @property
    def scale(self) -> dict[str, Any]:
        """As arguments of `ClusterArgs`; empty for one process, without replicas."""
        if self.autoscale is None:
            return {"replicas": self.replicas} if self.replicas is not None else {}
        low, high = self.autoscale
        first = self.replicas or low
        return {"autoscale": {"min_replicas": low, "initial_replicas": first, "max_replicas": high}}
