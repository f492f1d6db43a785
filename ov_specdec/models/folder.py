"""Reads the configuration files of an exported model."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError
from typing_extensions import Self

from ov_specdec.errors import ModelError, shorten
from ov_specdec.files import read_json
from ov_specdec.models.locate import DECODER_FILE, ENCODER_FILE, PROJECTION_FILE, decoder_file

CONTEXT_KEYS = (
    *("max_target_positions", "max_position_embeddings"),
    *("n_positions", "max_seq_len", "seq_length", "n_ctx"),
)
DEFAULT_CONTEXT = 4096
"""Default context length, for models without one, such as those with ALiBi positions, and for T5:
its positions are relative, and its configuration has only the length of training texts."""

TOKEN_IDS = ("eos_token_id", "bos_token_id", "decoder_start_token_id", "forced_bos_token_id")
"""Settings for which generation_config.json takes precedence."""

NUM_SAMPLES, SAMPLE_BYTES = 256, 4096
"""Samples of the weights for a digest: for models that differ in a tenth of them, the probability
of equal digests is 10^-11. They take some milliseconds."""


@dataclass(frozen=True)
class ModelFolder:
    """An exported model on disk.

    context_length: maximum tokens of prompt and output; for an encoder-decoder model, of the
    output, and of the input. sliding_window: tokens that a layer attends to, if fewer than the
    context. chunk: tokens of the chunks within which a layer attends, likewise. original_length: up
    to which LongRoPE uses its short factors. attention_cap: cap of attention scores.
    eos_token_ids: end-of-sequence tokens. decoder_start_token_id, forced_bos_token_id: first tokens
    of the decoder and of the output of an encoder-decoder model. features: audio settings, by the
    names of preprocessor_config.json; empty for text. model_type: the family, if given. mask_token:
    see `Runner`.
    """

    path: Path
    context_length: int
    sliding_window: int | None
    eos_token_ids: frozenset[int]
    original_length: int | None = None
    chunk: int | None = None
    attention_cap: float | None = None
    decoder_start_token_id: int | None = None
    forced_bos_token_id: int | None = None
    features: Mapping[str, int] = field(default_factory=dict)
    model_type: str = ""
    mask_token: int | None = None

    @property
    def ir(self) -> Path:
        """The XML file of the decoder's IR."""
        return self.path / decoder_file(self.path)

    @property
    def encoder_ir(self) -> Path:
        """The XML file of the encoder's IR, which decoder-only models and some drafts lack."""
        return self.path / ENCODER_FILE

    @property
    def projection(self) -> Path | None:
        """The IR of what a draft model reads of the main model's hidden states; None: nothing."""
        file = self.path / PROJECTION_FILE
        return file if file.is_file() else None

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether the decoder attends to the output of an encoder."""
        return self.ir.name == DECODER_FILE

    @property
    def num_bytes(self) -> int:
        """Size of the weights."""
        return _num_bytes(self.ir.with_suffix(".bin"))

    def digest(self) -> str:
        """A digest that identifies the model."""
        return digest_of(*filter(Path.is_file, (self.ir, self.encoder_ir)))

    @classmethod
    def read(cls, path: Path) -> "ModelFolder":
        """Read config.json and generation_config.json."""
        file, generation = path / "config.json", path / "generation_config.json"
        content = read_json(file)
        # Multimodal checkpoints keep the language model's settings one level down.
        if isinstance(inner := content.get("text_config"), dict):
            content |= inner
        defaults = read_json(generation) if generation.is_file() else {}
        content |= {name: defaults[name] for name in TOKEN_IDS if name in defaults}
        config = _Config.read(content, file)
        lengths = (getattr(config, key) for key in CONTEXT_KEYS)
        context = next(filter(None, lengths), DEFAULT_CONTEXT)
        if config.relative_attention_num_buckets is not None:
            context = DEFAULT_CONTEXT

        def within(length: int | None) -> int | None:
            return length if length and length < context else None

        eos, first = config.eos_token_id, config.decoder_start_token_id
        audio, features = path / "preprocessor_config.json", dict[str, int]()
        if decoder_file(path) == DECODER_FILE and config.num_mel_bins is not None:
            features = _Features.read(read_json(audio), audio).model_dump()
        return cls(
            path,
            context,
            within(config.sliding_window if config.use_sliding_window is not False else None),
            frozenset([eos] if isinstance(eos, int) else eos or ()),
            within(_original_length(config, file)),
            within(config.attention_chunk_size),
            config.attn_logit_softcapping,
            decoder_start_token_id=config.bos_token_id if first is None else first,
            forced_bos_token_id=config.forced_bos_token_id,
            features=features,
            model_type=config.model_type,
            mask_token=config.ptd_token_id if config.pard_token is None else config.pard_token,
        )


def digest_of(*irs: Path) -> str:
    """A digest that identifies IRs: of their graphs, and samples of their weights."""
    digest = hashlib.sha256()
    for ir in irs:
        digest.update(ir.read_bytes())
        weights = ir.with_suffix(".bin")
        size = _num_bytes(weights)
        digest.update(str(size).encode())
        if size:
            with weights.open("rb") as file:
                for sample in range(NUM_SAMPLES):
                    file.seek(sample * size // NUM_SAMPLES)
                    digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()


Length = Annotated[int, Field(ge=0)] | None


class _File(BaseModel):
    """Settings in a file, some of many."""

    model_config = ConfigDict(extra="ignore", strict=True)

    @classmethod
    def read(cls, content: Mapping[str, Any], file: Path) -> Self:
        """The settings; `ModelError` names one that is invalid."""
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            first = error.errors()[0]
            name, message = str(first["loc"][0]), first["msg"]
            reason = message[0].lower() + message[1:]
            problem = f"{file} gives {name} as {shorten(content.get(name))} ({reason})"
            raise ModelError(f"{problem}: correct it, or export the model again") from error


class _Config(_File):
    """What is read of config.json, and of generation_config.json. 0 and null: not given."""

    model_type: str = ""
    text_config: dict[str, Any] | None = None
    max_target_positions: Length = None
    max_position_embeddings: Length = None
    n_positions: Length = None
    max_seq_len: Length = None
    seq_length: Length = None
    n_ctx: Length = None
    original_max_position_embeddings: Length = None
    relative_attention_num_buckets: Length = None
    sliding_window: Length = None
    use_sliding_window: bool | None = None
    attention_chunk_size: Length = None
    attn_logit_softcapping: float | None = None
    rope_parameters: Any = None
    rope_scaling: Any = None
    eos_token_id: int | list[int] | None = None
    bos_token_id: int | None = None
    decoder_start_token_id: int | None = None
    forced_bos_token_id: int | None = None
    num_mel_bins: Any = None
    pard_token: Length = None
    ptd_token_id: Length = None


class _Features(_File):
    """Audio settings of preprocessor_config.json."""

    feature_size: PositiveInt
    sampling_rate: PositiveInt
    hop_length: PositiveInt
    n_fft: PositiveInt
    chunk_length: PositiveInt


def _original_length(config: _Config, file: Path) -> int | None:
    """Maximum length for LongRoPE's short factors; None for other models.

    Long factors identify it, since its name has changed. Each kind of layer may have its own.
    """
    rope = config.rope_parameters or config.rope_scaling
    if not isinstance(rope, Mapping):
        return None
    kinds = [each for each in (rope, *rope.values()) if isinstance(each, Mapping)]
    long = next((each for each in kinds if "long_factor" in each), None)
    if long is None or config.original_max_position_embeddings:
        return config.original_max_position_embeddings if long else None
    return _Config.read(long, file).original_max_position_embeddings


def _num_bytes(weights: Path) -> int:
    return weights.stat().st_size if weights.is_file() else 0
