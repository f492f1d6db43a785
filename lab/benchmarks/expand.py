"""From an exported model to one at the cost of a larger one, as Optimum exports it."""

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
import openvino as ov

from lab.benchmarks.expansion.ir_weights import read_weights
from lab.benchmarks.expansion.scales import restore_scales
from lab.benchmarks.expansion.shape import LlamaShape, fit_shape, parse_size
from lab.benchmarks.expansion.weights import Array, expand_weights, expanded_epsilon
from lab.benchmarks.options import PATH
from ov_specdec.cli.terminal import console, with_errors
from ov_specdec.errors import ExportError
from ov_specdec.files import expand_home, read_json
from ov_specdec.models.compile import load_model
from ov_specdec.models.devices import RuntimeConfig
from ov_specdec.models.export import (
    WeightFormat,
    export_model,
    partial_folder,
    require_complete,
    require_installed,
    require_origin,
    write_origin,
)
from ov_specdec.models.exported import open_exported, read_ir
from ov_specdec.models.folder import ModelFolder
from ov_specdec.models.locate import IR_FILE, embedded_folder, locate
from ov_specdec.runner.cached_sequence import CachedSequence, alone
from ov_specdec.sampling.logits import Logits

CONTEXT = 2048
"""Tokens that the expanded model takes, if it took fewer before: room to measure long contexts."""

INDEX = "model.safetensors.index.json"
NOT_COPIED = {"config.json", "openvino_config.json", IR_FILE, INDEX}
"""Files of a model that a checkpoint has anew, or that are about its IR."""

PROMPTS = (
    'def fibonacci(n):\n    """Return the n-th Fibonacci number."""\n    a, b = 0, 1\n',
    "import argparse\nimport sys\n\n\ndef main():\n    parser = argparse.ArgumentParser()\n",
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n",
)
TOLERANCE = 1e-5
"""What rounding may make of logits, as a part of the largest one.

The integers of int8 stay what they were, so only sums in f32 are rounded in another order.
"""


@click.command()
@with_errors
@click.argument("model", required=False)
@click.option("--size", metavar="N", default="1B", help="Parameters, as 0.3B or 500M. [1B]")
@click.option("--weight-format", type=click.Choice(("int8", "int4")), default="int8")
@click.option("--output", type=PATH, default=Path("models"), show_default=True)
def expand(model: str | None, size: str, weight_format: WeightFormat, output: Path) -> None:
    """Expand MODEL, a Llama, to the cost of a larger one that computes the same.

    Without MODEL, the embedded main. For measuring: acceptance stays that of the real pair, and a
    pass costs what it costs at the new size. The result is exported by Optimum, and its logits are
    compared with MODEL's, unless int4 makes another model of it. What has been made before is
    skipped.
    """
    with console.status("Expanding"):
        folder, shape = expand_model(model or embedded_folder("main"), size, output, weight_format)
    click.echo(f"{folder}\n{shape.num_parameters:,} parameters")


def expand_model(
    model: str | Path, size: str, output: Path, weight_format: WeightFormat = "int8"
) -> tuple[Path, LlamaShape]:
    """Expand a Llama, by its folder or Hub name, to about `size` parameters: its folder and shape.

    Makes a folder of its own below `output`, unless it is there; one that was made from another
    model is an error. Raises `OptionError` for a size that is out of reach, `ModelError` for a
    model that is not a Llama, `ExportError` if the export fails or computes something else.
    """
    source = locate(model)
    config = read_json(source / "config.json")
    live = LlamaShape.from_config(config)
    wide = fit_shape(live, parse_size(size))
    name = f"{expand_home(model).resolve().name}-expanded-{size.lower()}"
    folder = output / f"{name}-{weight_format}"
    if folder.exists():
        require_complete(folder, f"remove {folder} and expand again")
        require_origin(folder, model)
        return folder, wide
    require_installed("optimum", "optimum.intel")
    with partial_folder(output, folder.name) as partial:
        original = read_ir(ModelFolder.read(source))
        parts = expand_weights(read_weights(original, live), live, wide)
        write_checkpoint(partial / name, expanded_config(config, live, wide), parts, source)
        made = export_model(str(partial / name), partial, weight_format).folder
        shutil.rmtree(partial / name)
        write_origin(made, model)  # not the checkpoint, which that was exported from
        if weight_format == "int8":
            restore(made, original, source)
        made.rename(folder)
    return folder, wide


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


def write_checkpoint(
    folder: Path, config: Mapping[str, Any], parts: Iterable[Mapping[str, Array]], beside: Path
) -> None:
    """Write configuration and weights, and copy tokenizer and generation settings from `beside`.

    Each part becomes a file, so that only one part is in memory at a time.
    """
    from safetensors.numpy import save_file

    folder.mkdir()
    places: dict[str, str] = {}
    size = 0
    for number, part in enumerate(parts):
        file = f"model-{number:05d}.safetensors"
        tensors = {name: np.ascontiguousarray(tensor) for name, tensor in part.items()}
        save_file(tensors, folder / file, metadata={"format": "pt"})
        places.update(dict.fromkeys(part, file))
        size += sum(tensor.nbytes for tensor in part.values())
    index = {"metadata": {"total_size": size}, "weight_map": places}
    for name, content in ((INDEX, index), ("config.json", config)):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    for path in (*beside.glob("*.json"), *beside.glob("*.jinja")):
        if path.name not in NOT_COPIED:
            shutil.copy(path, folder)


def restore(made: Path, original: ov.Model, source: Path) -> None:
    """Write the exported IR again, with the original's int8 scales; it computes what it did."""
    model = read_ir(ModelFolder.read(made))
    restore_scales(model, original)
    again = made / "again" / IR_FILE  # the IR itself is open: weights are read when used
    again.parent.mkdir()
    ov.save_model(model, again, compress_to_fp16=False)
    for path in again.parent.iterdir():
        path.replace(made / path.name)
    again.parent.rmdir()
    if not (difference := compare_logits(source, made)) <= TOLERANCE:
        raise ExportError(
            f"the expanded model does not compute what {source} computes (logits differ by "
            f"{difference:.1e} of the largest one): its weights must already be int8, since "
            "rounding them anew makes another model"
        )


def compare_logits(first: Path, second: Path) -> float:
    """The largest difference of logits on a few prompts, as a part of the largest logit."""
    # One after the other, so that only one of them is in memory.
    a, b = (logits_of(folder) for folder in (first, second))
    return float(np.abs(a - b).max() / np.abs(a).max())


def logits_of(folder: Path) -> Logits:
    """The logits [positions, vocab] of all prompts, one below the other."""
    source = open_exported(folder)
    runtime = RuntimeConfig(kv="stateful", precision="exact")
    model = load_model(source, runtime).runner
    rows = []
    for prompt in PROMPTS:
        cache, ids = CachedSequence(model), source.tokenizer.encode(prompt)
        rows.append(alone(cache.advance(ids, num_rows=len(ids))).logits.copy())
        cache.discard()
    return np.concatenate(rows)
