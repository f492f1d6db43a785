"""Saves the KV caches of a prompt to files, so that later processes need not prefill it."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from ov_specdec.errors import OptionError, SessionError
from ov_specdec.files import replacing
from ov_specdec.generation.text_generator import TextGenerator
from ov_specdec.models.compile import LoadedModel
from ov_specdec.runner.cached_sequence import CachedSequence, alone

TOKENS, FINGERPRINT, SALT, CHECKSUM = "tokens", "fingerprint", "cache_salt", "checksum"
REMEDY = "delete it and save it again"


def save_caches(generator: TextGenerator, path: str | Path) -> None:
    """Write the KV caches of the last generation. See `SpeculativePipeline.save_cache`.

    Nothing else may use the models meanwhile.
    """
    tokens, salt = generator.last_cached
    files = _files(generator.models, path)
    for model, file in reversed(files):  # the main model's last: it marks completion
        cache = CachedSequence(model.runner, salt)
        try:
            held = tokens
            pairing = generator.sequences.pairing
            if pairing is not None and model.runner is not generator.sequences.main:
                held = pairing.translate(tokens)
            if held := held[: model.runner.max_length]:
                alone(cache.advance(held))
            _write(file, cache, model.fingerprint(), salt)
        finally:
            cache.free()


def load_caches(generator: TextGenerator, path: str | Path, cache_salt: str | None) -> None:
    """Load the KV caches that `save_caches` wrote. See `SpeculativePipeline.load_cache`."""
    for model, file in _files(generator.models, path):
        is_main = model.runner is generator.sequences.main
        if not is_main and not file.exists():
            continue
        cache = CachedSequence(model.runner, cache_salt)
        _read(file, cache, model.fingerprint(), cache_salt)
        if is_main:
            generator.last_cached = cache.tokens, cache_salt
        cache.free()


def _files(models: Sequence[LoadedModel], path: str | Path) -> list[tuple[LoadedModel, Path]]:
    """The models and their files, the main model's first."""
    if not isinstance(path, str | Path):
        raise OptionError("{path} must be a file", path=path)
    if models[0].folder.is_encoder_decoder:
        raise OptionError(
            f"the KV cache of {models[0].folder.path}, an encoder-decoder model, cannot be saved: "
            "its encoder reads the prompt, not its KV cache"
        )
    path = Path(path)
    draft = path.with_name(f"{path.stem}.draft{path.suffix}")
    pairs = zip(models, (path, draft), strict=False)
    # A draft that reads hidden states begins after what is cached.
    return [(model, file) for model, file in pairs if model.runner.feature_size is None]


def _write(path: Path, sequence: CachedSequence, fingerprint: str, cache_salt: str | None) -> None:
    """Write ids and tensors of a KV cache as safetensors.

    fingerprint: of all that the tensors depend on. cache_salt: of the tenant; the file has a digest
    of it. `_read` requires the same values of both. Raises `OptionError` for an empty
    cache, and for a path that cannot be written.
    """
    if not (tokens := sequence.tokens):
        raise OptionError(
            f"there is nothing to save in '{path}': generate something first, with "
            "{cache_prompt} on",
            cache_prompt=...,
        )
    content = {TOKENS: np.array(tokens, np.int64), **sequence.read_kv()}
    metadata = {FINGERPRINT: fingerprint, SALT: _digest(cache_salt)}
    checksum = {CHECKSUM: _checksum(metadata, content)}
    try:
        with replacing(path) as partial:
            save_file(content, partial, metadata | checksum)
    except (OSError, SafetensorError) as error:
        raise OptionError(f"the cache file '{path}' cannot be written: {error}") from error


def _read(path: Path, sequence: CachedSequence, fingerprint: str, cache_salt: str | None) -> None:
    """Load a sequence from a file.

    Raises `OptionError` for a file that is damaged, or with another fingerprint or salt.
    """
    if not path.is_file():
        raise OptionError(
            f"there is no cache file '{path}': save it with these models, or give another path"
        )
    try:
        with safe_open(path, framework="numpy") as file:  # type: ignore[no-untyped-call]
            metadata: dict[str, str] = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise OptionError(f"the cache file '{path}' cannot be read ({error}): {REMEDY}") from error
    if metadata.pop(CHECKSUM, None) != _checksum(metadata, tensors):
        raise OptionError(f"the cache file '{path}' is damaged: {REMEDY}")
    if metadata[FINGERPRINT] != fingerprint:
        raise OptionError(
            f"the cache file '{path}' was made with another model, machine, OpenVINO version, KV "
            f"backend or other properties: {REMEDY}"
        )
    if metadata[SALT] != _digest(cache_salt):
        raise OptionError(
            f"the cache file '{path}' was not saved with {{cache_salt}}: give the salt of the "
            f"saved generation, or {REMEDY}",
            cache_salt=cache_salt,
        )
    try:
        sequence.restore(tensors.pop(TOKENS).tolist(), tensors)
    except SessionError as error:
        raise OptionError(f"the cache file '{path}' cannot be used ({error}): {REMEDY}") from error


def _digest(cache_salt: str | None) -> str:
    """The digest of a salt in a file, which others may read; empty without a salt."""
    if cache_salt is None:
        return ""
    return hashlib.sha256(cache_salt.encode("utf-8", "surrogatepass")).hexdigest()


def _checksum(metadata: Mapping[str, str], tensors: Mapping[str, NDArray[Any]]) -> str:
    """The digest of all of a file: a flipped bit would change texts without a sign of it."""
    digest = hashlib.blake2b(repr(sorted(metadata.items())).encode(), digest_size=16)
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tensor.shape}".encode())
        digest.update(np.ascontiguousarray(tensor).data)
    return digest.hexdigest()
