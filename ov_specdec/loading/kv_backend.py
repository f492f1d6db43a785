"""The choice of a KV backend for a model, and the model in the form that it takes."""

from typing import NamedTuple

import openvino as ov

from ov_specdec.errors import ModelError
from ov_specdec.loading.attention import count_windowed, require_whole, require_windows
from ov_specdec.loading.devices import NOT_PAGED, Device, require_paged
from ov_specdec.loading.graph import has_delta_rule, to_paged
from ov_specdec.loading.key_cache import center_keys
from ov_specdec.loading.qkv import fuse_qkv
from ov_specdec.loading.runtime_config import Backend, KvBackend
from ov_specdec.loading.source import ModelSource, read_ir

FREE_ROLLBACK = "drops rejected draft tokens at no cost"
AS_ASKED = "as asked for"
"""The reason for a KV backend that somebody has chosen."""


class Choice(NamedTuple):
    """A KV backend, the reason for it, and the model for it."""

    kv: Backend
    reason: str
    model: ov.Model


def choose_backend(source: ModelSource, device: Device, kv: KvBackend, max_length: int) -> Choice:
    """The paged backend where it is right, else the stateful one.

    The source's model may be changed. max_length: tokens that a sequence may have. Raises
    `DeviceError` and `ModelError` where kv="paged" cannot be had.
    """
    if kv == "stateful":
        return Choice("stateful", AS_ASKED, source.model)
    if not device.takes_paged:
        if kv == "paged":
            require_paged(device)
        return Choice("stateful", f"{NOT_PAGED} {device.name}", source.model)
    try:
        _page(source, max_length)
        if kv == "auto" and device.is_cpu:
            _require_fast(source.model)
    except ModelError as error:
        if kv == "paged":
            raise
        # The attempt may have left the model half changed.
        return Choice("stateful", str(error), read_ir(source.folder))
    if device.is_cpu:  # a GPU has no keys quantized by token, and its plugin fuses products itself
        center_keys(source.model)
        fuse_qkv(source.model)
    return Choice("paged", AS_ASKED if kv == "paged" else FREE_ROLLBACK, source.model)


def _page(source: ModelSource, max_length: int) -> None:
    """Turn attention into paged attention; `ModelError` where that would change it."""
    num_windowed = count_windowed(source.model)
    require_whole(source, max_length)
    to_paged(source.model)
    require_windows(source.model, num_windowed)


def _require_fast(model: ov.Model) -> None:
    """Raise `ModelError` for a paged model that is slower on CPU than as it was exported."""
    if has_delta_rule(model):
        raise ModelError("passes on a paged KV cache take longer: OpenVINO's gated delta rule")
