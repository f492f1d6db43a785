"""From an exported model to a cost-expanded one, as Optimum exports it."""

import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import openvino as ov

from ov_specdec.errors import ExportError
from ov_specdec.models.export import (
    export_model,
    partial_folder,
    require_complete,
    require_origin,
    write_origin,
)
from ov_specdec.models.folder import ModelFolder
from ov_specdec.models.locate import IR_FILE, locate
from ov_specdec.models.optimum import require
from ov_specdec.models.source import read_ir
from ov_specdec.records.files import expand_home, read_json
from tests.benchmarks.expansion.checkpoint import write_checkpoint
from tests.benchmarks.expansion.comparison import LogitsDifference, compare_logits
from tests.benchmarks.expansion.ir_weights import read_weights
from tests.benchmarks.expansion.scales import restore_scales
from tests.benchmarks.expansion.shape import LlamaShape, fit_shape, parse_size
from tests.benchmarks.expansion.weights import expand, expanded_epsilon

CONTEXT = 2048
"""Tokens that the expanded model takes, if it took fewer before: room to measure long contexts."""

T = TypeVar("T")


@dataclass(frozen=True)
class Expanded:
    """A cost-expanded model: its folder and shape; how it compares if this call made it."""

    folder: Path
    shape: LlamaShape
    difference: LogitsDifference | None


def expand_model(
    model: str | Path,
    size: str,
    output: Path,
    on_step: Callable[[str], object],
) -> Expanded:
    """Expand a Llama, by its folder or Hub name, to about `size` parameters, such as "1B".

    Makes a folder of its own below `output`, unless it is there; one that was made from another
    model is an error. The result computes what `model` computes, which is checked; `on_step` is
    told what goes on. Raises `OptionError` for a size that is out of reach, `ModelError` for a
    model that is not a Llama, `ExportError` if the export fails.
    """
    source = locate(model)
    config = read_json(source / "config.json")
    live = LlamaShape.from_config(config)
    wide = fit_shape(live, parse_size(size))
    name = f"{expand_home(model).resolve().name}-expanded-{size.lower()}"
    folder = output / f"{name}-int8"
    if folder.exists():
        require_complete(folder, f"remove {folder} and expand again")
        require_origin(folder, model)
        return Expanded(folder, wide, None)
    require("optimum", "optimum.intel")
    with partial_folder(output, folder.name) as partial:
        original = read_ir(ModelFolder.read(source))
        weights = read_weights(original, live)
        parts = _counted(expand(weights, live, wide), wide.layers + 1, on_step)
        write_checkpoint(partial / name, expanded_config(config, live, wide), parts, source)
        on_step(f"Exporting {wide.num_parameters:,} parameters")
        made = export_model(str(partial / name), partial, "int8").folder
        shutil.rmtree(partial / name)
        write_origin(made, model)  # not the checkpoint, which that was exported from
        _restore(made, original)
        on_step("Comparing logits")
        difference = _check_function(source, made)
        made.rename(folder)
    return Expanded(folder, wide, difference)


def expanded_config(config: dict[str, Any], live: LlamaShape, wide: LlamaShape) -> dict[str, Any]:
    """The config.json of the expanded model."""
    rope = (config.get("rope_parameters") or config.get("rope_scaling") or {}).get("rope_type")
    context = config["max_position_embeddings"]
    return {
        **config,
        "hidden_size": wide.hidden,
        "intermediate_size": wide.intermediate,
        "num_hidden_layers": wide.layers,
        "num_attention_heads": wide.heads,
        "num_key_value_heads": wide.kv_heads,
        "head_dim": wide.head_dim,  # left out, it would follow from the wider hidden state
        "rms_norm_eps": expanded_epsilon(config["rms_norm_eps"], live, wide),
        # Some other kinds of positions depend on the context that they were made for.
        "max_position_embeddings": max(context, CONTEXT) if rope in (None, "default") else context,
        "dtype": "float32",
    }


def _counted(parts: Iterable[T], total: int, on_step: Callable[[str], object]) -> Iterator[T]:
    for number, part in enumerate(parts, start=1):
        on_step(f"Writing a checkpoint: part {number} of {total}")
        yield part


def _restore(made: Path, original: ov.Model) -> None:
    """Write the exported IR again if some of its int8 scales are not the original's."""
    model = read_ir(ModelFolder.read(made))
    if restore_scales(model, original):
        again = made / "again" / IR_FILE  # the IR itself is open: weights are read when used
        again.parent.mkdir()
        ov.save_model(model, again, compress_to_fp16=False)
        for path in again.parent.iterdir():
            path.replace(made / path.name)
        again.parent.rmdir()


def _check_function(source: Path, made: Path) -> LogitsDifference:
    difference = compare_logits(source, made)
    if not difference.is_rounding:
        raise ExportError(
            f"the expanded model does not compute what {source} computes ({difference}): its "
            "weights must already be int8, since rounding them anew makes another model"
        )
    return difference
