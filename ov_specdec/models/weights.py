"""Types of exported weights, and how they are compressed."""

from itertools import chain
from typing import Any, Literal

from ov_specdec.options.model import Options, option

WeightFormat = Literal["fp16", "int8", "int4"]


class Int4Options(Options):
    """Optimum's options for int4 weights; Optimum has defaults for others."""

    group_size: int | None = option(
        None,
        "int4: weights that share a scale; -1: a whole row.",
        ge=-1,
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
        given = {"--group-size": self.group_size, "--ratio": self.ratio}
        pairs = [(name, str(value)) for name, value in given.items() if value is not None]
        return [*chain(*pairs), *["--sym"] * self.sym]

    def suffix(self) -> str:
        """The given options, as a suffix of a folder's name."""
        return "".join(f"-{argument.removeprefix('--')}" for argument in self.arguments())


def compress(weight_format: WeightFormat, int4: Int4Options, model: Any) -> Any:
    """Compress the weights of an IR, as Optimum does by default."""
    import nncf

    if weight_format == "fp16":
        return model
    if weight_format == "int8":
        return nncf.compress_weights(model)
    fallback = nncf.GroupSizeFallbackMode.ADJUST
    return nncf.compress_weights(
        model,
        mode=nncf.CompressWeightsMode[f"INT4_{'SYM' if int4.sym else 'ASYM'}"],
        group_size=int4.group_size,
        ratio=int4.ratio,
        advanced_parameters=nncf.AdvancedCompressionParameters(group_size_fallback_mode=fallback),
    )
