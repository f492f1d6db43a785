"""What passes of loaded models cost, kept under what their times depend on."""

import hashlib
from collections.abc import Sequence

from ov_specdec.costs import KeptCosts
from ov_specdec.files import user_cache
from ov_specdec.loading.compile import LoadedModel
from ov_specdec.loading.devices import usable_cores

MEASURING_SHARE, MEASURING_SECONDS = 0.05, 2.0
"""Time for measuring what passes cost: a part of loading, or so many seconds where that is more."""


def kept_costs(models: Sequence[LoadedModel], load_seconds: float) -> KeptCosts:
    """The costs of a main model, and of its draft if there is one."""
    runners = [model.runner for model in models]
    parts = [str(usable_cores()), *(model.fingerprint() for model in models)]
    digest = hashlib.sha256("\n".join(parts).encode())
    cache = user_cache()
    return KeptCosts(
        runners[0],
        runners[1] if len(runners) > 1 else None,
        None if cache is None else cache / "costs" / f"{digest.hexdigest()[:16]}.json",
        max(MEASURING_SHARE * load_seconds, MEASURING_SECONDS),
    )
