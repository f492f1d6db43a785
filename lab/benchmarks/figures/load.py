"""A server under load, which has to lose no answer."""

from collections.abc import Mapping
from functools import partial
from shutil import which
from typing import Any

from lab.benchmarks.figures.given import Given
from lab.benchmarks.measuring import Measurements
from lab.benchmarks.peers.asks import BenchmarkError
from lab.benchmarks.record import Row
from lab.load import beside


def load(given: Given, seconds: float) -> Measurements:  # the server has its own
    """One run of guidellm's clients beside those that hang up and are hostile."""
    yield {"seconds": seconds}, partial(served, seconds)


def served(seconds: float) -> Row:
    """What has come of all requests. Raises `BenchmarkError` without guidellm."""
    if which("guidellm") is None:
        raise BenchmarkError("guidellm is not installed: pip install '.[test-all,load]'")
    return as_row(beside.run(seconds), seconds)


def as_row(figures: Mapping[str, Any], seconds: float) -> Row:
    """The figures that the pages state; speed: tokens of guidellm's whole answers per second."""
    guidellm, others = figures["guidellm"], figures["others"]
    answered, health = others["answered"], others["health by status"]
    return {
        "speed": round(guidellm["whole"] * beside.TOKENS / seconds, 1),
        "whole": guidellm["whole"],
        "failed": guidellm["failed"],
        "compared": answered["stream"] + answered["whole"],
        "wrong": len(others["wrong"]),
        "left": answered["hang-up"],
        "hostile": sum(answered[kind] for kind in beside.HOSTILE),
        "refused": others["told to come later"],
        "health": health.get(200, 0),
        "unhealthy": sum(health.values()) - health.get(200, 0),
        "memory": others["memory_mb"],
    }
