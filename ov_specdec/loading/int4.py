"""Settings of int4 weights, with Optimum's names, and a group size that fits a model."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from ov_specdec.description import About, check_described
from ov_specdec.errors import Option, OptionError

DEFAULT_GROUP_SIZE = 128
"""Optimum's default for models without specific settings."""
GROUP_SIZES = (DEFAULT_GROUP_SIZE, 64, 32)

WIDTHS = (
    *("hidden_size", "n_embd", "n_embed", "d_model", "word_embed_proj_dim"),
    *("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"),
    *("moe_intermediate_size", "shared_expert_intermediate_size"),
    *("q_lora_rank", "kv_lora_rank"),
)
"""Entries of config.json with the number of inputs of a matrix, in some model family."""
HEAD_WIDTHS = ("head_dim", "v_head_dim")
"""Entries that give one when multiplied by the number of heads."""


def _check_group_size(name: str, value: int) -> None:
    if value < 1 and value != -1:
        raise OptionError(Option(name, value), " must be at least 1, or -1 for one group to a row")


@dataclass(frozen=True)
class Int4Options:
    """Optimum's options for int4 weights; Optimum has defaults for others.

    Annotations hold their descriptions. Raises `OptionError` for a value out of range.
    """

    group_size: Annotated[
        int | None,
        About(
            "int4: weights that share a scale; -1: a whole row.",
            unset="128, or less if required",
            check=_check_group_size,
        ),
    ] = None
    ratio: Annotated[
        float | None,
        About(
            "int4: fraction of layers in int4, the others in int8.",
            above=0.0,
            high=1.0,
            unset="Optimum decides",
            metavar="R",
        ),
    ] = None
    sym: Annotated[bool, About("int4: omit zero points.", unset="Optimum decides")] = False

    def __post_init__(self) -> None:
        check_described(self)

    def arguments(self) -> list[str]:
        """The given options, as command-line arguments."""
        given = []
        if self.group_size is not None:
            given += ["--group-size", str(self.group_size)]
        if self.ratio is not None:
            given += ["--ratio", str(self.ratio)]
        return [*given, "--sym"] if self.sym else given

    def suffix(self) -> str:
        """The given options, as a suffix of a folder's name."""
        return "".join(f"-{argument.removeprefix('--')}" for argument in self.arguments())


def layer_widths(config: Mapping[str, Any]) -> list[int]:
    """Numbers of inputs of a model's weight matrices, ascending, as far as in config.json.

    int4 groups lie along the inputs, so their size must divide these numbers.
    """
    text = config.get("text_config")
    flat = {**config, **(text if isinstance(text, dict) else {})}
    widths = {width for name in WIDTHS for width in _numbers(flat.get(name))}
    for heads in _numbers(flat.get("num_attention_heads")):
        widths |= {heads * size for name in HEAD_WIDTHS for size in _numbers(flat.get(name))}
    return sorted(widths)


def fitting_group_size(widths: Iterable[int]) -> int | None:
    """The largest of `GROUP_SIZES` that divides all widths, if there is one."""
    widths = list(widths)
    return next((size for size in GROUP_SIZES if all(width % size == 0 for width in widths)), None)


def _numbers(value: object) -> Iterator[int]:
    """The positive whole numbers in an entry, which may be a list with one for each layer."""
    for number in value if isinstance(value, list) else [value]:
        if isinstance(number, int) and not isinstance(number, bool) and number > 0:
            yield number
