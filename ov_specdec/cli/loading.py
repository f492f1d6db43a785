"""Loads models for a command, with spinners on stderr."""

from collections.abc import Mapping
from typing import Any

from ov_specdec.cli.terminal import console
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.stats import BatchInvariance


def make_pipeline(arguments: Mapping[str, Any]) -> SpeculativePipeline:
    """Load the models, with a spinner on stderr.

    The default maximum batch size is 1.
    """
    with console.status("Loading models"):
        return SpeculativePipeline(**{"max_batch_size": 1, **arguments})


def make_lasting_pipeline(arguments: Mapping[str, Any]) -> SpeculativePipeline:
    """Load models for a long run, and check batch invariance."""
    pipeline = make_pipeline(arguments)
    check_invariance(pipeline)
    return pipeline


def prepare(pipeline: SpeculativePipeline) -> None:
    """Measure the cost of passes and compile static shapes, with a spinner on stderr."""
    with console.status("Measuring, and compiling static shapes") as status:
        pipeline.prepare(
            lambda share: status.update(f"Measuring, and compiling static shapes: {share:.0%}")
        )


def check_invariance(pipeline: SpeculativePipeline) -> BatchInvariance:
    """Check whether passes of the main model agree, with a spinner on stderr."""
    with console.status("Checking whether passes agree") as status:
        return pipeline.check_batch_invariant(
            lambda share: status.update(f"Checking whether passes agree: {share:.0%}")
        )
