"""Checks that passes and KV caches of a model agree, or falls back to the stateful cache."""

from typing import NamedTuple

from ov_specdec.errors import DeviceError, ModelError
from ov_specdec.files import keep_section, read_section, record_file
from ov_specdec.graph.attention import windows
from ov_specdec.models.compile import LoadedModel, load_model, load_stateful
from ov_specdec.models.devices import KvBackend, RuntimeConfig
from ov_specdec.models.exported import open_exported, read_ir
from ov_specdec.models.folder import ModelFolder
from ov_specdec.runner.probe import (
    AROUND,
    COMPARED_TOKENS,
    MIN_LENGTH,
    distance,
    largest_distance,
    rows_around,
)
from ov_specdec.sampling.logits import Logits

TOLERANCE = 0.1
"""Maximum distance of two rows by rounding: in bf16 with a u8 KV cache 0.01 was usual and 0.06 the
maximum. With positions off by one or two it was 0.09 to 1.3."""

EXACT_TOLERANCE = 0.001
"""The same in f32, where it was less than 0.00001. For a tiny Granite that lost the states of its
linear attention, it was 0.0023."""

SHORT = 32
"""Tokens of the first comparison of caches, of models with windows and without."""

LONGEST_PREFILL = 8192
"""Maximum tokens to prefill: a minute for a billion parameters on two cores."""

CACHE_TOLERANCE = 0.01
"""Maximum distance of two rows in f32 by rounding after thousands of tokens."""


def verifiable(loaded: LoadedModel) -> LoadedModel:
    """The same model if its passes agree, or else a replacement.

    Memory limits are set before, because setting one after passes would copy the KV cache. Results
    are kept in records. If passes on a paged KV cache that the caller did not require disagree, the
    stateful one is used. Raises `ModelError` if that does not help.
    """
    reason = difference(loaded)
    if reason and loaded.kv == "paged" and loaded.config.kv == "auto":
        try:
            loaded = load_stateful(loaded.folder, loaded.config, reason)
        except DeviceError as error:
            raise ModelError(f"{loaded.folder.path}: {reason}; {error}") from error
        second = difference(loaded)
        reason = f"{reason}; {second}" if second else ""
    if reason:
        problem = f"{loaded.folder.path}: {reason}, so draft tokens could not be verified"
        remedy = "use another model, or {precision} if its precision rounds strongly"
        raise ModelError(f"{problem}: {remedy}", precision="exact")
    return loaded


def difference(loaded: LoadedModel) -> str:
    """How the passes of a model disagree; "" if they agree, or verify no draft tokens.

    Models with recurrent states have to continue them, even if they verify no draft tokens.
    """
    runner = loaded.runner
    verifies = runner.max_draft_tokens != 0 or loaded.kv == "stateful"
    if loaded.folder.is_encoder_decoder or not verifies or runner.max_length < MIN_LENGTH:
        return ""
    path = record_file(loaded.fingerprint())
    found = read_section(path, "passes", float)
    if found is None or not found >= 0.0:
        found = largest_distance(runner)
        keep_section(path, "passes", found)
    tolerance = EXACT_TOLERANCE if loaded.config.precision == "exact" else TOLERANCE
    if found <= tolerance:
        return ""
    logits = f"logits of a pass over {COMPARED_TOKENS} tokens differ from passes over one"
    distance = f"(distance {found:.2f}, above {tolerance} for rounding)"
    return f"on a {loaded.kv} KV cache the {logits} {distance}"


class Agreement(NamedTuple):
    """How two ways of decoding agree, in a line; and whether they differ by more than rounding."""

    finding: str
    is_broken: bool = False


def compare_caches(folder: ModelFolder) -> Agreement:
    """Prefill the same text on both KV caches of a decoder, past each of its windows, in f32."""
    # The ends of windows, chunks and LongRoPE's short factors, and an early position.
    own = folder.sliding_window, folder.chunk, folder.original_length
    sizes = {*own, *windows(read_ir(folder))}
    most = min(folder.context_length, LONGEST_PREFILL) - AROUND
    positions = sorted({min(SHORT, most), *(size for size in sizes if size and size <= most)})

    def rows_on(kv: KvBackend) -> list[Logits]:
        """Frees the model, as two may not fit."""
        config = RuntimeConfig(kv=kv, precision="exact")
        runner = load_model(open_exported(folder.path), config).runner
        return [rows_around(runner, position) for position in positions]

    stateful = rows_on("stateful")
    try:
        paged = rows_on("paged")
    except ModelError as error:
        return Agreement(f"stateful only ({error})")
    distances = [max(map(distance, *pair)) for pair in zip(stateful, paged, strict=True)]
    is_broken = max(distances) > CACHE_TOLERANCE
    pairs = zip(distances, positions, strict=True)
    shown = ", ".join(f"{found:.4f} at {position}" for found, position in pairs)
    verdict = "DIFFER" if is_broken else "agree"
    finding = f"paged and stateful {verdict} (distance of logits: {shown} tokens)"
    return Agreement(finding, is_broken)
