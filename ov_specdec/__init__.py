"""Exact speculative decoding for OpenVINO."""

from importlib.metadata import version

from ov_specdec.errors import (
    DeviceError,
    ExportError,
    LogitsError,
    ModelError,
    OptionError,
    SessionError,
    SpecdecError,
    TokenizerMismatchError,
)
from ov_specdec.generation import Chunk, GenerationResult, Origin
from ov_specdec.options import GenerationOptions
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.stats import GenerationStats, RoundStats

__version__ = version("ov-specdec")

__all__ = [
    "Chunk",
    "DeviceError",
    "ExportError",
    "GenerationOptions",
    "GenerationResult",
    "GenerationStats",
    "LogitsError",
    "ModelError",
    "OptionError",
    "Origin",
    "RoundStats",
    "SessionError",
    "SpecdecError",
    "SpeculativePipeline",
    "TokenizerMismatchError",
    "__version__",
]
