"""Budgets of loaded models: memory of their KV caches; and the costs of their passes."""

from collections.abc import Hashable, Sequence
from functools import partial
from math import ceil

import numpy as np

from ov_specdec.cache.slot import EncoderInput
from ov_specdec.errors import CacheFullError, OptionError
from ov_specdec.files import record_file
from ov_specdec.models.compile import LoadedModel
from ov_specdec.models.devices import Device, free_memory
from ov_specdec.models.folder import ModelFolder
from ov_specdec.planning.kept_costs import LARGEST_ROOM, KeptCosts
from ov_specdec.runner.base import Runner
from ov_specdec.runner.cached_sequence import max_tokens

GB = 10**9

LEAST_TOKENS = 32
"""Minimum capacity of KV caches in tokens: the largest block. Less is a mistyped unit."""

DEVICE_SHARE = 0.5
"""Default fraction of a device's free memory."""

STATES_PER_SEQUENCE = 20
"""Recurrent states for each sequence: after 16 draft tokens, and kept ones."""

SHARE_OF_STATES = 0.5
"""Maximum fraction of the memory for recurrent states; fewer draft tokens need less."""


def limit_memory(
    models: Sequence[LoadedModel], kv_cache_size: float | None, max_batch_size: int
) -> None:
    """Bound the KV caches of models that hold the same sequences, the main model's first.

    kv_cache_size: in GB, for all caches on one device; None: enough for `max_batch_size` sequences
    with the main model's context, at most half of the free memory there, or a quarter for two
    devices, which may share it. A CPU gives it as needed, a GPU at once. Raises `OptionError` if
    the device manages that memory itself.
    """
    blocks = ceil(models[0].runner.max_length / LEAST_TOKENS)  # which no two sequences share
    needed = max_batch_size * blocks * LEAST_TOKENS
    by_device: dict[Device, list[Runner]] = {}
    for model in models:
        by_device.setdefault(model.config.target, []).append(model.runner)
    for device, runners in by_device.items():
        if kv_cache_size is not None and any(runner.bytes_per_token == 0 for runner in runners):
            problem = "{kv_cache_size} has no effect on a stateful KV cache"
            remedy = "leave it out, or use {kv} (encoder-decoder models have no paged one)"
            raise OptionError(f"{problem}: {remedy}", kv_cache_size=kv_cache_size, kv="paged")
        bytes_per_token = sum(runner.bytes_per_token for runner in runners)
        if not bytes_per_token:
            continue
        share = DEVICE_SHARE * free_memory(device) / len(by_device)
        memory = share if kv_cache_size is None else kv_cache_size * GB
        num_states = STATES_PER_SEQUENCE * (max_batch_size + 1)
        if bytes_per_state := sum(runner.bytes_per_state for runner in runners):
            num_states = min(num_states, int(SHARE_OF_STATES * memory / bytes_per_state))
        num_tokens = int((memory - num_states * bytes_per_state) / bytes_per_token)
        if kv_cache_size is None:
            _limit(runners, min(needed, num_tokens), num_states)
            continue
        if num_tokens < LEAST_TOKENS:
            raise _too_small(kv_cache_size, bytes_per_token / GB, needed)
        for runner in runners:
            runner.limit(num_tokens, num_states)


def _too_small(kv_cache_size: float, gb_per_token: float, needed: int) -> OptionError:
    problem = f"{{kv_cache_size}} has no room for {LEAST_TOKENS} tokens"
    takes = f"take {1000 * gb_per_token:.2g} GB, the maximum batch {needed * gb_per_token:.2g}"
    remedy = f"give more (1,000 tokens of these models {takes}), or leave it out"
    return OptionError(f"{problem}: {remedy}", kv_cache_size=kv_cache_size)


def _limit(runners: Sequence[Runner], num_tokens: int, num_states: int) -> None:
    """Bound KV caches by what is free: of a GPU, that does not count other processes."""
    try:
        for runner in runners:
            runner.limit(num_tokens, num_states)
    except CacheFullError:
        if num_tokens < 2 * LEAST_TOKENS:
            raise
        _limit(runners, num_tokens // 2, num_states)


def kept_costs(models: Sequence[LoadedModel]) -> KeptCosts:
    """The costs of a main model, and of its draft, if any."""
    runners = [model.runner for model in models]
    # A short context has no room for some of the passes.
    rooms = [min(max_tokens(runner), LARGEST_ROOM) for runner in runners]
    num_kept = [len(model.config.kept_tokens or ()) for model in models]
    return KeptCosts(
        runners[0],
        runners[1] if len(runners) > 1 else None,
        record_file(*(model.fingerprint() for model in models), str(rooms), str(num_kept)),
        new_namespace=partial(_timed_namespace, models[0].folder),
        learns_prompts=not models[0].folder.is_encoder_decoder,
    )


def _timed_namespace(folder: ModelFolder) -> Hashable:
    """A namespace for timed passes, which shares nothing."""
    if not folder.is_encoder_decoder:
        return object()
    if not folder.features:
        num_tokens = min(100, folder.context_length)  # longer ones make all passes longer
        return EncoderInput(np.zeros((1, num_tokens), np.int64), object())
    audio = folder.features
    num_frames = audio["chunk_length"] * audio["sampling_rate"] // audio["hop_length"]
    return EncoderInput(np.zeros((1, audio["feature_size"], num_frames), np.float32), object())
