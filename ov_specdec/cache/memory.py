"""How much memory the KV caches of a pair may take."""

from collections.abc import Sequence

import psutil

from ov_specdec.cache.session import Runner
from ov_specdec.errors import OptionError

GB = 10**9

SHARE_OF_FREE = 0.5
"""Part of the machine's free memory that is taken where nobody says how much."""


def limit_memory(
    models: Sequence[Runner], kv_cache_size: float | None, max_batch_size: int
) -> None:
    """Bound the KV caches of models that hold the same sequences.

    kv_cache_size: in GB, for all of them together; None: what `max_batch_size` sequences need that
    are as long as the main model's context, at most half of the memory that is free. It is taken as
    it is needed. Raises `OptionError` where the device manages that memory itself.
    """
    bytes_per_token = sum(model.bytes_per_token for model in models)
    if kv_cache_size is None:
        free = SHARE_OF_FREE * psutil.virtual_memory().available
        num_tokens = max_batch_size * models[0].max_length
        if bytes_per_token:
            num_tokens = min(num_tokens, int(free / bytes_per_token))
    elif any(model.bytes_per_token == 0 for model in models):
        raise OptionError(
            f"kv_cache_size={kv_cache_size} has no effect on a stateful KV cache: leave it out, or "
            "use kv='paged' (encoder-decoder models have no paged one)"
        )
    else:
        num_tokens = int(kv_cache_size * GB / bytes_per_token)
    for model in models:
        model.limit(num_tokens)
