"""The sizes of a Llama, and those of a larger one that can hold it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ov_specdec.errors import ModelError, OptionError

SIZE = re.compile(r"(?=.*[1-9])(\d+(?:\.\d+)?)([MB]?)", re.IGNORECASE)
UNITS = {"": 1, "M": 1_000_000, "B": 1_000_000_000}

# Up to how many parameters, layers, and width of the MLP over that of the hidden state. After
# GPT-2 small, SmolLM2-360M, Qwen2.5-0.5B and TinyLlama-1.1B.
PROPORTIONS = (
    (200_000_000, 12, 4.0),
    (400_000_000, 32, 2.667),
    (750_000_000, 24, 5.43),
    (float("inf"), 22, 2.75),
)
STEP = 64
"""What the width of the MLP is a multiple of, as in real models: kernels work in blocks."""
MAX_MASKED = 8192

FAR, NEAR = 0.3, 0.1
"""How far from the wanted parameters a shape may be: in those proportions, and after adjustment."""


@dataclass(frozen=True)
class LlamaShape:
    """The sizes that make up a Llama."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied: bool

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "LlamaShape":
        """The sizes that config.json states. `ModelError` unless it is a Llama without biases."""
        kind = config.get("model_type")
        if kind != "llama" or config.get("attention_bias") or config.get("mlp_bias"):
            biases = "" if kind != "llama" else " with biases"
            raise ModelError(
                f"a model of type '{kind}'{biases} cannot be expanded: only a Llama without biases"
            )
        heads = config["num_attention_heads"]
        return cls(
            hidden=config["hidden_size"],
            intermediate=config["intermediate_size"],
            layers=config["num_hidden_layers"],
            heads=heads,
            kv_heads=config.get("num_key_value_heads") or heads,
            head_dim=config.get("head_dim") or config["hidden_size"] // heads,
            vocab=config["vocab_size"],
            tied=bool(config.get("tie_word_embeddings")),
        )

    @property
    def num_parameters(self) -> int:
        """Weights in all; a tied embedding counts once."""
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        mlp = 3 * self.hidden * self.intermediate
        norms = (2 * self.layers + 1) * self.hidden
        embeddings = (1 if self.tied else 2) * self.vocab * self.hidden
        return self.layers * (attention + mlp) + norms + embeddings


def parse_size(text: str) -> int:
    """A number of parameters, from "1B", "300M" or plain digits. `OptionError` otherwise."""
    match = SIZE.fullmatch(text)
    if not match:
        raise OptionError(f"size '{text}' must be a number of parameters such as 0.3B, 500M or 1B")
    return round(float(match[1]) * UNITS[match[2].upper()])


def fit_shape(live: LlamaShape, num_parameters: int) -> LlamaShape:
    """A shape of about `num_parameters`, with the proportions of real models, that holds `live`.

    Raises `OptionError` if there is none.
    """
    layers, ratio = next((n, r) for limit, n, r in PROPORTIONS if num_parameters <= limit)
    shapes = [_wide(live, width, max(layers, live.layers), ratio) for width in _widths(live)]
    near = min(shapes, key=lambda shape: abs(shape.num_parameters - num_parameters))
    # Widths come in coarse steps, a KV head and its query heads at a time; the MLP makes it exact.
    lack = (num_parameters - near.num_parameters) / (3 * near.hidden * near.layers)
    best = replace(
        near, intermediate=max(STEP * round((near.intermediate + lack) / STEP), live.intermediate)
    )
    off = [abs(shape.num_parameters - num_parameters) / num_parameters for shape in (near, best)]
    if off[0] > FAR or off[1] > NEAR:
        raise OptionError(
            f"size {num_parameters:,} is out of reach: for a model of {live.num_parameters:,} "
            f"parameters it can be from {shapes[0].num_parameters:,} "
            f"to {shapes[-1].num_parameters:,}"
        )
    return best


def _widths(live: LlamaShape) -> range:
    """Hidden sizes that hold `live`.

    transformers requires the heads to fill them, and a live query head must keep its own KV head,
    so query heads and KV heads grow in proportion.
    """
    step = live.head_dim * (live.heads // live.kv_heads)
    smallest = max(-(-live.hidden // step), live.kv_heads) * step
    return range(smallest, MAX_MASKED + 1, step)


def _wide(live: LlamaShape, hidden: int, layers: int, ratio: float) -> LlamaShape:
    heads = hidden // live.head_dim
    return replace(
        live,
        hidden=hidden,
        intermediate=max(STEP * round(hidden * ratio / STEP), live.intermediate),
        layers=layers,
        heads=heads,
        kv_heads=heads * live.kv_heads // live.heads,
    )
