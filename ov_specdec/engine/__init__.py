"""Runs many sequences together: scheduler, steps, and the threads that run them."""

from ov_specdec.engine.engine import Engine
from ov_specdec.engine.loop import EngineLoop
from ov_specdec.engine.output import Round
from ov_specdec.engine.scheduler import Limits
from ov_specdec.engine.sequence import MAX_UNREAD, Cancelled, Sequence, WantedLogprobs

__all__ = [
    "MAX_UNREAD",
    "Cancelled",
    "Engine",
    "EngineLoop",
    "Limits",
    "Round",
    "Sequence",
    "WantedLogprobs",
]
