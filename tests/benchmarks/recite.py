"""A model of the size of a real one whose weights are random, and that recites recorded texts.

    python -m tests.benchmarks record-outputs --main CHAT --prompts TASKS --output TEXTS.json
    python -m tests.benchmarks recite TEXTS.json --tokenizer CHAT --output FOLDER
    ov-specdec bench --main FOLDER/lfm2-350m-recites --methods suffix --prompt-file TASKS

It costs what the real one costs, and its drafts are accepted as in a real text, whose weights
nobody needs. A logits processor could force a text as well; openvino.genai takes none, so the
graph does: the hidden state before the logits is replaced by the output embedding of the token
that follows a token in its place. Behind a wrong draft token the random weights go on alone.
"""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np
import openvino as ov
from numpy.typing import NDArray
from openvino import opset13 as ops

from ov_specdec.cli.terminal import console, with_errors
from ov_specdec.errors import OptionError
from ov_specdec.graph.paging import last_product
from ov_specdec.models.export import export_model
from ov_specdec.models.folder import ModelFolder
from ov_specdec.models.locate import IR_FILE
from ov_specdec.models.source import read_ir
from tests.benchmarks.options import OUTPUT_OPTION, PATH
from tests.benchmarks.record import Record, Row

KIND, FAMILY, TRANSFORMERS = "lfm2-350m", "lfm2", "5.4.*"
"""The model that is made, its family, and what Optimum exports that with."""

ATTENTION_AT = (2, 5, 8, 10, 12, 14)
"""Its layers that are no convolutions."""

CONFIG = {
    "vocab_size": 65536,
    "max_position_embeddings": 4096,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "tie_word_embeddings": True,
    "num_hidden_layers": 16,
    "block_ff_dim": 6656,
    "layer_types": ["full_attention" if layer in ATTENTION_AT else "conv" for layer in range(16)],
}

LITTLE = 1e-3
"""What the random hidden state counts beside a token's embedding."""


def save_checkpoint(tokenizer: Path, folder: Path) -> None:
    """Save the model with random weights, the same each time, and a tokenizer."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(1)
    config = AutoConfig.for_model(FAMILY, **CONFIG)
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    AutoTokenizer.from_pretrained(tokenizer).save_pretrained(folder)


def following(texts: list[Row]) -> dict[tuple[int, int], int]:
    """The token that follows a token in its place, in whichever text.

    Where two texts have the same token in the same place, the second goes over into the first.
    """
    found: dict[tuple[int, int], int] = {}
    for row in texts:
        ids = row["prompt"] + row["output"]
        for place in range(len(row["prompt"]), len(ids)):
            found.setdefault((place - 1, ids[place - 1]), ids[place])
    return found


def add_texts(model: ov.Model, texts: list[Row]) -> None:
    """Have a model go on with these texts, in place."""
    head = last_product(model)
    if head is None:
        raise OptionError("the logits of this model are no matrix product: export another one")
    rows, next_tokens = _embeddings(head), following(texts)
    keys = [place * len(rows) + token for place, token in next_tokens]
    inputs = {name: port for port in model.inputs for name in port.names}
    earlier = ops.multiply(inputs["position_ids"], ops.constant(np.int64(len(rows))))
    found = ops.unsqueeze(ops.add(earlier, inputs["input_ids"]), ops.constant(np.int64(-1)))
    is_known = ops.convert(ops.equal(found, ops.constant(np.array(keys))), ov.Type.f32)
    told = ops.matmul(is_known, ops.constant(rows[list(next_tokens.values())]), False, False)
    own = ops.multiply(head.input_value(0), ops.constant(np.float32(LITTLE)))
    head.input(0).replace_source_output(ops.add(own, told).output(0))
    model.validate_nodes_and_infer_types()


def _embeddings(head: ov.Node) -> NDArray[np.float32]:
    """What the logits are the products with, for each token, whatever its weights are packed as."""
    weights = ov.Model([head.input_value(1)], [], "weights")
    unpacked: NDArray[np.float32] = ov.Core().compile_model(weights, "CPU")([])[0]
    return unpacked


@click.command()
@with_errors
@click.argument("texts", type=PATH)
@click.option("--tokenizer", metavar="DIR", required=True, help="Folder of the tokenizer.")
@OUTPUT_OPTION
def recite(texts: Path, tokenizer: str, output: Path) -> None:
    """Make a random model of the size of LFM2-350M that recites TEXTS, to measure costs.

    TEXTS is what record-outputs wrote. The weights are int8.
    """
    rows = Record.read(texts, "record-outputs").rows
    exported = output / f"{KIND}-int8"
    with console.status("Exporting") as status:
        if not exported.exists():
            output.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(dir=output) as checkpoint:
                folder = Path(checkpoint) / KIND
                save_checkpoint(Path(tokenizer), folder)
                export_model(str(folder), output, "int8", transformers=TRANSFORMERS)
        status.update("Adding the texts")
        model = read_ir(ModelFolder.read(exported))
        add_texts(model, rows)
        recites = output / f"{KIND}-recites"
        shutil.rmtree(recites, ignore_errors=True)
        shutil.copytree(exported, recites, ignore=shutil.ignore_patterns("openvino_model.*"))
        ov.save_model(model, recites / IR_FILE, compress_to_fp16=False)
    click.echo(str(recites))
