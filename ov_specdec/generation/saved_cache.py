"""Saves KV caches of a prompt as safetensors for later processes."""

from collections.abc import Sequence
from pathlib import Path

from ov_specdec.errors import Option, OptionError
from ov_specdec.generation.text_generator import TextGenerator
from ov_specdec.models.compile import LoadedModel
from ov_specdec.runner.cached_sequence import CachedSequence, alone
from ov_specdec.runner.store import draft_file, read_sequence, write_sequence


def save_caches(models: Sequence[LoadedModel], generator: TextGenerator, path: str | Path) -> None:
    """Write the KV caches of the last generation. See `SpeculativePipeline.save_cache`.

    models: the main model first, then the draft. Nothing else may use them meanwhile.
    """
    cached, salt = generator.last_cached
    texts = [cached]
    if len(models) > 1:
        pairing = generator.pairing
        texts.append(pairing.translate(cached) if pairing else cached)
    files = list(zip(_files(models, path), texts, strict=True))
    for (model, file), tokens in reversed(files):  # the main model's last: it marks completion
        cache = CachedSequence(model.runner, salt)
        try:
            if held := tokens[: model.runner.max_length]:
                alone(cache.advance(held))
            write_sequence(file, cache, model.fingerprint(), salt)
        finally:
            cache.free()


def load_caches(
    models: Sequence[LoadedModel],
    generator: TextGenerator,
    path: str | Path,
    cache_salt: str | None,
) -> None:
    """Load the KV caches that `save_caches` wrote. See `SpeculativePipeline.load_cache`."""
    for model, file in _files(models, path):
        is_main = model is models[0]
        if not is_main and not file.exists():
            continue
        cache = CachedSequence(model.runner, cache_salt)
        read_sequence(file, cache, model.fingerprint(), cache_salt)
        if is_main:
            generator.last_cached = cache.tokens, cache_salt
        cache.free()


def _files(models: Sequence[LoadedModel], path: str | Path) -> list[tuple[LoadedModel, Path]]:
    """The models and their files, the main model's first."""
    if not isinstance(path, str | Path):
        raise OptionError(Option("path", path), " must be a file")
    if models[0].folder.is_encoder_decoder:
        raise OptionError(
            f"the KV cache of {models[0].folder.path}, an encoder-decoder model, cannot be saved: "
            "its encoder reads the prompt, not its KV cache"
        )
    return list(zip(models, (Path(path), draft_file(Path(path))), strict=False))
