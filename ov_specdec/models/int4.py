"""Settings of int4 weights, with Optimum's names."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator

from ov_specdec.options.model import Options, option

GROUP_SIZE = 128
"""Optimum's default for models without specific settings."""

WIDTHS = (
    *("hidden_size", "n_embd", "n_embed", "d_model", "word_embed_proj_dim"),
    *("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"),
    *("moe_intermediate_size", "shared_expert_intermediate_size"),
    *("q_lora_rank", "kv_lora_rank"),
)
"""Entries of config.json with the number of inputs of a matrix, in some model family."""


def _check_group_size(size: int) -> int:
    if size < 1 and size != -1:
        raise ValueError
    return size


class Int4Options(Options):
    """Optimum's options for int4 weights; Optimum has defaults for others."""

    group_size: Annotated[int, AfterValidator(_check_group_size)] | None = option(
        None,
        "int4: weights that share a scale; -1: a whole row.",
        unset="Optimum decides, and adjusts it",
        expects="at least 1, or -1 for one group to a row",
        group="Weights",
    )
    ratio: float | None = option(
        None,
        "int4: fraction of layers in int4, the others in int8.",
        gt=0,
        le=1,
        unset="Optimum decides",
        metavar="R",
    )
    sym: bool = option(False, "int4: omit zero points.", unset="Optimum decides")

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


def adjust_groups(config: Mapping[str, Any]) -> list[str]:
    """Arguments for smaller groups in layers whose inputs the default size does not divide.

    None where all are divisible, as far as config.json tells: Optimum has specific settings for
    some models, which arguments replace.
    """
    text = config.get("text_config")
    flat = {**config, **(text if isinstance(text, dict) else {})}
    given = [flat.get(name) for name in WIDTHS]
    widths = [n for value in given for n in (value if isinstance(value, list) else [value])]
    if all(width % GROUP_SIZE == 0 for width in widths if isinstance(width, int)):
        return []
    return ["--group-size", str(GROUP_SIZE), "--group-size-fallback", "adjust"]
