"""Cost curves of loaded models, cached under a key of all that times depend on."""

from collections.abc import Hashable, Sequence
from functools import partial

import numpy as np

from ov_specdec.cache.slot import Source
from ov_specdec.models.compile import LoadedModel
from ov_specdec.models.folder import ModelFolder
from ov_specdec.planning.cost_source import KeptCosts
from ov_specdec.planning.measurement import LARGEST_ROOM
from ov_specdec.records.record import record_file
from ov_specdec.runner.cached_sequence import max_tokens

MEASURING_SHARE, MEASURING_SECONDS = 0.05, 2.0
"""Time for measuring costs: a fraction of loading time, and a minimum in seconds."""

SAMPLE_TOKENS = 100
"""Tokens of the source for timed passes of an encoder-decoder model, if its context has room. A
longer source makes all passes longer."""


def kept_costs(models: Sequence[LoadedModel], load_seconds: float) -> KeptCosts:
    """The costs of a main model, and of its draft, if any."""
    runners = [model.runner for model in models]
    # A short context has no room for some of the passes.
    rooms = [min(max_tokens(runner), LARGEST_ROOM) for runner in runners]
    return KeptCosts(
        runners[0],
        runners[1] if len(runners) > 1 else None,
        record_file(*(model.fingerprint() for model in models), str(rooms)),
        max(MEASURING_SHARE * load_seconds, MEASURING_SECONDS),
        new_namespace=partial(_sample_source, models[0].folder),
    )


def _sample_source(folder: ModelFolder) -> Hashable:
    """A namespace for timed passes, which shares nothing."""
    if not folder.is_encoder_decoder:
        return object()
    if not folder.features:
        num_tokens = min(SAMPLE_TOKENS, folder.context_length)
        return Source(np.zeros((1, num_tokens), np.int64), object())
    audio = folder.features
    num_frames = audio["chunk_length"] * audio["sampling_rate"] // audio["hop_length"]
    return Source(np.zeros((1, audio["feature_size"], num_frames), np.float32), object())
