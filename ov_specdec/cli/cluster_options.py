"""Options of `ov-specdec serve` for replicas on Ray Serve."""

from dataclasses import dataclass
from typing import Any

import click

from ov_specdec.checks import require_int
from ov_specdec.errors import OptionError

CLUSTER_OPTIONS = (
    click.option(
        "--replicas",
        type=int,
        metavar="N",
        help="Number of replicas of the models under Ray Serve, each on exclusive CPUs. "
        "[one process, without Ray]",
    ),
    click.option(
        "--autoscale",
        metavar="MIN:MAX",
        help="Scale the number of replicas with the load. [constant, --replicas]",
    ),
    click.option(
        "--address",
        metavar="ADDRESS",
        help="Ray cluster of the replicas: auto or HOST:PORT. [starts one on this machine]",
    ),
)


@dataclass(frozen=True)
class ClusterOptions:
    """Their values. autoscale: minimum and maximum of replicas."""

    replicas: int
    autoscale: tuple[int, int] | None
    address: str | None


def pop_cluster(options: dict[str, Any]) -> ClusterOptions | None:
    """Take them out of the command's options; None without Ray."""
    replicas, autoscale = options.pop("replicas"), options.pop("autoscale")
    address = options.pop("address")
    if replicas is None and autoscale is None:
        if address is not None:
            raise OptionError(f"--address '{address}' has no effect without --replicas: give both")
        return None
    bounds = None if autoscale is None else _read_bounds(autoscale)
    if replicas is None:
        replicas = 1 if bounds is None else bounds[0]
    require_int("replicas", replicas, low=1)
    if bounds is not None and not bounds[0] <= replicas <= bounds[1]:
        raise OptionError(f"--replicas {replicas} must be within --autoscale {autoscale}")
    return ClusterOptions(replicas, bounds, address)


def _read_bounds(text: str) -> tuple[int, int]:
    low, _, high = text.partition(":")
    if not (low.isdecimal() and high.isdecimal() and 1 <= int(low) <= int(high)):
        raise OptionError(f"--autoscale '{text}' must be MIN:MAX, two whole numbers, such as 1:4")
    return int(low), int(high)
