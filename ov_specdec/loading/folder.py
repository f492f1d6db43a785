"""What the configuration files of an exported model say about it."""

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
"""For models that state no context length, such as those with ALiBi positions, and for T5's, whose
positions are relative: what they state is the length of the texts that they were trained on."""

FEATURE_SETTINGS = ("feature_size", "sampling_rate", "hop_length", "n_fft", "chunk_length")
"""Of preprocessor_config.json: mel bins, rate, hop, samples of a frame, seconds of a window."""

MEL_BINS = "num_mel_bins"
"""Of config.json: what tells a model of speech from one of text."""

NUM_SAMPLES, SAMPLE_BYTES = 256, 4096
"""Of the weights, for a digest: of two models that differ in a tenth of them, all but one in 10^11
are told apart, in some milliseconds."""


@dataclass(frozen=True)
class ModelFolder:
    """An exported model on disk.

    context_length: tokens that the model was made for, prompt and output together; of an
    encoder-decoder model, those of the output, and of a text that is its source.
    sliding_window: tokens that a layer attends to, where that is fewer than the context.
    chunk: tokens of the chunks within which a layer attends, likewise. border: tokens up to which
    LongRoPE takes its short factors, likewise. attention_cap: what attention scores are capped at.
    eos_token_ids: tokens that end a text. decoder_start_token_id: what the decoder of an
    encoder-decoder model begins with. forced_bos_token_id: what its output begins with. features:
    how a speech model hears, by the names of `FEATURE_SETTINGS`; none for text. model_type: the
    family, where it is named.
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
        """The XML file of the encoder's IR, which decoders and some drafts do not have."""
        return self.path / ENCODER_FILE

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether the decoder attends to the output of an encoder."""
        return self.ir.name == DECODER_FILE

    @property
    def weights(self) -> Path:
        """The file of the weights; a model need not have one."""
        return self.ir.with_suffix(".bin")

    @property
    def num_bytes(self) -> int:
        """Size of the weights."""
        return self.weights.stat().st_size if self.weights.is_file() else 0

    def digest(self) -> str:
        """What tells this model from others: its graphs, and samples of its weights."""
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
    """How a speech model hears, nothing for text; `ModelError` for what is missing or unusable."""
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
    """A token id as a configuration gives it; `ModelError` if it is none."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ModelError(
        f"the configuration in {path} gives {name} as {value!r}, which is no token id: correct it, "
        "or export the model again"
    )


def _as_token_ids(path: Path, value: object) -> frozenset[int]:
    """The set of ids that a configuration writes as nothing, one id or a list."""
    ids = [] if value is None else value if isinstance(value, list) else [value]
    if not all(isinstance(token, int) and not isinstance(token, bool) for token in ids):
        raise ModelError(
            f"the configuration in {path} gives eos_token_id as {value!r}, which is no token id: "
            "correct it, or export the model again"
        )
    return frozenset(ids)


def _as_length(path: Path, name: str, value: object) -> int:
    """A number of tokens as a configuration gives it; `ModelError` if it is none."""
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
    """The longest text that LongRoPE's short factors are for, if longer ones fit the context.

    LongRoPE is told by its long factors, since its name has changed. Some models have settings for
    each kind of layer.
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
