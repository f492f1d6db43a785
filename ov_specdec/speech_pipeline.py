"""The Python interface for speech: a Whisper, a drafter, and text from recordings."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ov_specdec.cache.encoder import Source
from ov_specdec.chunks import Chunk
from ov_specdec.errors import SessionError
from ov_specdec.loading.devices import Precision
from ov_specdec.options import GenerationOptions
from ov_specdec.pipeline import CLOSED, SpeculativePipeline
from ov_specdec.speculation.drafters.factory import DrafterName
from ov_specdec.speech.audio import Audio, read_audio
from ov_specdec.speech.features import FeatureExtractor, Features
from ov_specdec.speech.options import TranscriptionKwargs, TranscriptionOptions
from ov_specdec.speech.segments import TranscriptionResult, collect
from ov_specdec.speech.settings import Task, WhisperSettings
from ov_specdec.speech.stream import TranscriptionStream
from ov_specdec.speech.transcriber import Model, Transcription
