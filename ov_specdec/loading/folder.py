"""Reads the configuration files of an exported model."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ov_specdec.errors import ModelError, shorten
from ov_specdec.files import read_json
from ov_specdec.loading.locate import DECODER_FILE, ENCODER_FILE, decoder_file

CONTEXT_KEYS = (
    *("max_target_positions", "max_position_embeddings"),
    *("n_positions", "max_seq_len", "seq_length", "n_ctx"),
)
DEFAULT_CONTEXT = 4096
"""Default context length, for models without one, such as those with ALiBi positions, and for T5:
its positions are relative, and its configuration has only the length of training texts."""

FEATURE_SETTINGS = ("feature_size", "sampling_rate", "hop_length", "n_fft", "chunk_length")
"""Audio settings of preprocessor_config.json: mel bins, rate, hop, samples of a frame, seconds of a
window."""

MEL_BINS = "num_mel_bins"
"""Setting of config.json that identifies a speech model."""

NUM_SAMPLES, SAMPLE_BYTES = 256, 4096
"""Samples of the weights for a digest: for models that differ in a tenth of them, the probability
of equal digests is 10^-11. They take some milliseconds."""


@dataclass(frozen=True)
class ModelFolder:
    """An exported model on disk.

    context_length: maximum tokens of prompt and output; for an encoder-decoder model, of the
    output, and of a source text. sliding_window: tokens that a layer attends to, if fewer than the
    context. chunk: tokens of the chunks within which a layer attends, likewise. border: length up
    to which LongRoPE uses its short factors, likewise. attention_cap: cap of attention scores.
    eos_token_ids: end-of-sequence tokens. decoder_start_token_id, forced_bos_token_id: first tokens
    of the decoder and of the output of an encoder-decoder model. features: audio settings, by the
    names of `FEATURE_SETTINGS`; empty for text. model_type: the family, if given.
    """

    path: Path
    context_length: int
    sliding_window: int | None
    eos_token_ids: frozenset[int]
    border: int | None = None
    chunk: int | None = None
    attention_cap: float | None = None
    decoder_start_token_id: int | None = None
    forced_bos_token_id: int | None = None
    features: Mapping[str, int] = field(default_factory=dict)
    model_type: str = ""

    @property
    def ir(self) -> Path:
        """The XML file of the decoder's IR."""
        return self.path / decoder_file(self.path)

    @property
    def encoder_ir(self) -> Path:
        """The XML file of the encoder's IR, which decoder-only models and some drafts lack."""
        return self.path / ENCODER_FILE

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether the decoder attends to the output of an encoder."""
        return self.ir.name == DECODER_FILE

    @property
    def weights(self) -> Path:
        """The file of the weights, which may not exist."""
        return self.ir.with_suffix(".bin")

    @property
    def num_bytes(self) -> int:
        """Size of the weights."""
        return self.weights.stat().st_size if self.weights.is_file() else 0

    def digest(self) -> str:
        """A digest that identifies the model: of its graphs, and samples of its weights."""
        digest = hashlib.sha256()
        for ir in (self.ir, self.encoder_ir):
            if ir.is_file():
                _sample(ir, digest)
        return digest.hexdigest()

    @classmethod
    def read(cls, path: Path) -> "ModelFolder":
        """Read config.json and generation_config.json."""
        config = read_json(path / "config.json")
        # Multimodal checkpoints keep the language model's settings one level down.
        inner = config.get("text_config") or {}
        if not isinstance(inner, dict):
            raise ModelError(
                f"{path}/config.json gives text_config as {shorten(inner)}, which is no object: "
                "correct it, or export the model again"
            )
        config = {**config, **inner}
        generation = path / "generation_config.json"
        defaults = read_json(generation) if generation.is_file() else {}
        eos = defaults.get("eos_token_id", config.get("eos_token_id"))
        key = next((key for key in CONTEXT_KEYS if config.get(key)), None)
        if "relative_attention_num_buckets" in config:
            key = None
        context = DEFAULT_CONTEXT if key is None else _as_length(path, key, config[key])
        folder = cls(
            path,
            context,
            _sliding_window(path, config, context),
            _as_token_ids(path, eos),
            _border(path, config, context),
            _chunk(path, config, context),
            _attention_cap(path, config),
            model_type=str(config.get("model_type", "")),
        )
        if not folder.is_encoder_decoder:
            return folder
        given = {
            name: _as_token_id(path, name, value)
            for name in ("bos_token_id", "decoder_start_token_id", "forced_bos_token_id")
            if (value := defaults.get(name, config.get(name))) is not None
        }
        return replace(
            folder,
            decoder_start_token_id=given.get("decoder_start_token_id", given.get("bos_token_id")),
            forced_bos_token_id=given.get("forced_bos_token_id"),
            features=_feature_settings(path, config),
        )


def _sample(ir: Path, digest: "hashlib._Hash") -> None:
    """Add a graph and samples of its weights to a digest."""
    digest.update(ir.read_bytes())
    weights = ir.with_suffix(".bin")
    size = weights.stat().st_size if weights.is_file() else 0
    digest.update(str(size).encode())
    if size:
        with weights.open("rb") as file:
            for sample in range(NUM_SAMPLES):
                file.seek(sample * size // NUM_SAMPLES)
                digest.update(file.read(SAMPLE_BYTES))


def _feature_settings(path: Path, config: Mapping[str, Any]) -> dict[str, int]:
    """Audio settings, empty for text; `ModelError` if they are missing or invalid."""
    if MEL_BINS not in config:
        return {}
    file = path / "preprocessor_config.json"
    content = read_json(file)
    found: dict[str, Any] = {name: content.get(name) for name in FEATURE_SETTINGS}
    for name, value in found.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ModelError(f"{file} gives {name} as {value!r}: export the model again")
    return found


def _as_token_id(path: Path, name: str, value: object) -> int:
    """A token id in a configuration; `ModelError` if it is invalid."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ModelError(
        f"the configuration in {path} gives {name} as {value!r}, which is no token id: correct it, "
        "or export the model again"
    )


def _as_token_ids(path: Path, value: object) -> frozenset[int]:
    """A set of ids, which is null, one id or a list in a configuration."""
    ids = [] if value is None else value if isinstance(value, list) else [value]
    if not all(isinstance(token, int) and not isinstance(token, bool) for token in ids):
        raise ModelError(
            f"the configuration in {path} gives eos_token_id as {value!r}, which is no token id: "
            "correct it, or export the model again"
        )
    return frozenset(ids)


def _as_length(path: Path, name: str, value: object) -> int:
    """A number of tokens in a configuration; `ModelError` if it is invalid."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ModelError(
            f"{path}/config.json gives {name} as {value!r}, which is no number of tokens: correct "
            "it, or export the model again"
        )
    return value


def _sliding_window(path: Path, config: dict[str, Any], context: int) -> int | None:
    if not config.get("sliding_window") or config.get("use_sliding_window") is False:
        return None
    window = _as_length(path, "sliding_window", config["sliding_window"])
    return window if window < context else None


def _chunk(path: Path, config: Mapping[str, Any], context: int) -> int | None:
    if not config.get("attention_chunk_size"):
        return None
    chunk = _as_length(path, "attention_chunk_size", config["attention_chunk_size"])
    return chunk if chunk < context else None


def _attention_cap(path: Path, config: Mapping[str, Any]) -> float | None:
    cap = config.get("attn_logit_softcapping")
    if cap is None or (isinstance(cap, int | float) and not isinstance(cap, bool)):
        return cap
    raise ModelError(
        f"{path}/config.json gives attn_logit_softcapping as {cap!r}, which is no number: correct "
        "it, or export the model again"
    )


def _border(path: Path, config: Mapping[str, Any], context: int) -> int | None:
    """Maximum length for LongRoPE's short factors, if longer texts fit the context.

    Long factors identify LongRoPE, since its name has changed. Some models have settings for each
    kind of layer.
    """
    rope = config.get("rope_parameters") or config.get("rope_scaling")
    if not isinstance(rope, Mapping):
        return None
    settings = [each for each in (rope, *rope.values()) if isinstance(each, Mapping)]
    long = next((each for each in settings if "long_factor" in each), None)
    if long is None:
        return None
    key = "original_max_position_embeddings"
    border = _as_length(path, key, config.get(key) or long.get(key) or context)
    return border if border < context else None
