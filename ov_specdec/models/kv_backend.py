"""Chooses the KV backend of a model, and changes its graph for it."""

from typing import NamedTuple

import openvino as ov

from ov_specdec.errors import ModelError
from ov_specdec.graph.attention import count_windowed, require_whole, require_windows
from ov_specdec.graph.keys import center_keys
from ov_specdec.graph.paging import has_delta_rule, to_paged
from ov_specdec.graph.qkv import fuse_qkv
from ov_specdec.models.devices import NOT_PAGED, Device, require_paged
from ov_specdec.models.runtime_config import Backend, KvBackend
from ov_specdec.models.source import ModelSource, read_ir

FREE_ROLLBACK = "drops rejected draft tokens at no cost"
AS_ASKED = "as requested"
"""The reason for a KV backend that the caller chose."""


class Choice(NamedTuple):
    """A KV backend, the reason for it, and the model for it."""

    kv: Backend
    reason: str
    model: ov.Model


def choose_backend(source: ModelSource, device: Device, kv: KvBackend, max_length: int) -> Choice:
    """The paged backend if it is correct and fast, else the stateful one.

    May change the source's model. max_length: maximum tokens of a sequence. Raises `DeviceError`
    and `ModelError` if kv="paged" is not possible.
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
        # The attempt may have changed the model partly.
        return Choice("stateful", str(error), read_ir(source.folder))
    if device.is_cpu:  # a GPU does not quantize keys by token, and its plugin fuses products itself
        center_keys(source.model)
        fuse_qkv(source.model)
    return Choice("paged", AS_ASKED if kv == "paged" else FREE_ROLLBACK, source.model)


def _page(source: ModelSource, max_length: int) -> None:
    """Turn attention into paged attention; `ModelError` if that would change results."""
    num_windowed = count_windowed(source.model)
    require_whole(source.model, source.folder.chunk, max_length)
    to_paged(source.model)
    require_windows(source.model, num_windowed)


def _require_fast(model: ov.Model) -> None:
    """Raise `ModelError` for a paged model that is slower on CPU than the stateful one."""
    if has_delta_rule(model):
        raise ModelError("passes on a paged KV cache take longer: OpenVINO's gated delta rule")
