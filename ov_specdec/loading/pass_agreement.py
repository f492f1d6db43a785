"""Checks that a model's passes agree, and falls back to another KV backend if not."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ov_specdec.errors import DeviceError, ModelError, Option
from ov_specdec.files import kept_file, read_kept, replacing
from ov_specdec.loading.compile import LoadedModel, ToLoad, load_model
from ov_specdec.loading.kv_backend import AS_ASKED
from ov_specdec.loading.prepare import SINGLE_TOKENS
from ov_specdec.loading.source import read_ir
from ov_specdec.pass_agreement import (
    EXACT_TOLERANCE,
    NUM_TOKENS,
    PREFIX,
    TOLERANCE,
    largest_distance,
)
from ov_specdec.runner.plain import PlainModel
from ov_specdec.runner.rewinding import RewindingModel

VERSION = 2


def verifiable(loaded: Sequence[LoadedModel], models: Sequence[ToLoad]) -> list[LoadedModel]:
    """The same models if their passes agree, with replacements for those whose passes do not.

    models: their sources. Memory limits are set before, because setting one after passes would copy
    the KV cache. Results are cached with cost curves. If passes on a paged KV cache that the caller
    did not require disagree, the stateful one is used. Raises `ModelError` if that does not help.
    """
    return [_verifiable(one, model) for one, model in zip(loaded, models, strict=True)]


def _verifiable(loaded: LoadedModel, model: ToLoad) -> LoadedModel:
    if isinstance(loaded.runner, RewindingModel) and not _continues_states(loaded):
        loaded = _plain(loaded, model)
    reason = difference(loaded)
    if not reason:
        return loaded
    if loaded.kv == "stateful" or loaded.config.kv != "auto":
        raise _refusal(loaded, reason)
    source, config, vocab_size = _on_stateful_cache(model)
    try:
        other = load_model(source, config, vocab_size=vocab_size)
    except DeviceError as error:
        raise ModelError(f"{source.folder.path}: {reason}; {error}") from error
    other = replace(other, reason=other.reason.replace(AS_ASKED, reason, 1))
    if isinstance(other.runner, RewindingModel):
        return _verifiable(other, (source, config, vocab_size))
    if second := difference(other):
        raise _refusal(other, f"{reason}; {second}")
    return other


def _on_stateful_cache(model: ToLoad) -> ToLoad:
    """The source to load a model again on the stateful KV cache."""
    source, config, vocab_size = model
    source = replace(source, model=read_ir(source.folder))
    return source, replace(config, kv="stateful", batch_invariant=False), vocab_size


def _continues_states(loaded: LoadedModel) -> bool:
    """Whether a pass over several tokens continues the recurrent states of a model."""
    try:
        return not difference(loaded)
    except RuntimeError:  # OpenVINO's, of a graph that takes single tokens only
        return False


def _plain(loaded: LoadedModel, model: ToLoad) -> LoadedModel:
    """The same model without drafts, compiled again.

    The effects of a failed pass in a compiled model outlive its infer requests.
    """
    source, config, vocab_size = _on_stateful_cache(model)
    fresh = load_model(source, config, vocab_size=vocab_size)
    if isinstance(fresh.runner, RewindingModel):
        fresh = replace(fresh, runner=fresh.runner.plain())
    return replace(fresh, reason=f"{loaded.reason}; {SINGLE_TOKENS}")


def _refusal(loaded: LoadedModel, reason: str) -> ModelError:
    is_plain = isinstance(loaded.runner, PlainModel)
    harm = "texts would be wrong" if is_plain else "draft tokens could not be verified"
    return ModelError(
        f"{loaded.folder.path}: {reason}, so {harm}: use another model, or ",
        Option("precision", "exact"),
        " if its precision rounds strongly",
    )


def difference(loaded: LoadedModel) -> str:
    """How the passes of a model disagree; "" if they agree, or verify no draft tokens.

    Models with recurrent states have to continue them, even if they verify no draft tokens.
    """
    runner = loaded.runner
    verifies = runner.max_draft_tokens != 0 or isinstance(runner, PlainModel | RewindingModel)
    if (
        loaded.folder.is_encoder_decoder
        or not verifies
        or runner.max_length < 2 * PREFIX + NUM_TOKENS
    ):
        return ""
    kind = "plain" if isinstance(runner, PlainModel) else "passes"
    path = kept_file("costs", loaded.fingerprint(), f".{kind}.json")
    found = read_kept(path, VERSION, lambda content: float(content["distance"]))
    if found is None:
        found = largest_distance(runner)
        _keep(path, found)
    tolerance = EXACT_TOLERANCE if loaded.config.precision == "exact" else TOLERANCE
    if found <= tolerance:
        return ""
    return (
        f"on a {loaded.kv} KV cache the logits of a pass over {NUM_TOKENS} tokens differ from "
        f"passes over one (distance {found:.2f}, above {tolerance} for rounding)"
    )


def _keep(path: Path | None, found: float) -> None:
    """Cache a distance, if possible: computing it again takes less than a second."""
    if path is not None:
        with suppress(OSError), replacing(path) as part:
            part.write_text(json.dumps({"version": VERSION, "distance": found}) + "\n")
