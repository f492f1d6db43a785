"""Cost curves of loaded models, cached under a key of all that times depend on."""

from collections.abc import Hashable, Sequence
from functools import partial

import numpy as np

from ov_specdec.files import kept_file
from ov_specdec.loading.compile import LoadedModel
from ov_specdec.loading.folder import FEATURE_SETTINGS, ModelFolder
from ov_specdec.planning.costs import Compare, KeptCosts, no_comparison
from ov_specdec.runner.source import Source

MEASURING_SHARE, MEASURING_SECONDS = 0.05, 2.0
"""Time for measuring costs: a fraction of loading time, and a minimum in seconds."""

SAMPLE_TOKENS = 100
"""Tokens of the source for timed passes of an encoder-decoder model, if its context has room. A
longer source makes all passes longer."""


def kept_costs(
    models: Sequence[LoadedModel], load_seconds: float, compare: Compare = no_comparison
) -> KeptCosts:
    """The costs of a main model, and of its draft, if any. compare: see `measure`."""
    runners = [model.runner for model in models]
    return KeptCosts(
        runners[0],
        runners[1] if len(runners) > 1 else None,
        kept_file("costs", "\n".join(model.fingerprint() for model in models)),
        max(MEASURING_SHARE * load_seconds, MEASURING_SECONDS),
        new_namespace=partial(_sample_source, models[0].folder),
        compare=compare,
    )


def _sample_source(folder: ModelFolder) -> Hashable:
    """A namespace for timed passes, which shares nothing."""
    if not folder.is_encoder_decoder:
        return object()
    if not folder.features:
        num_tokens = min(SAMPLE_TOKENS, folder.context_length)
        return Source(np.zeros((1, num_tokens), np.int64), object())
    bins, rate, hop, _, seconds = (folder.features[name] for name in FEATURE_SETTINGS)
    return Source(np.zeros((1, bins, seconds * rate // hop), np.float32), object())
