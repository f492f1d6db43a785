"""A Whisper at the cost of a larger one.

Every channel is there twice: zeros beside them would change the statistics of LayerNorm. A matrix
is tiled and divided by how often its inputs are there, a power of two, so that its int8 export has
the integers that it had. The last norm is halved, for the embedding that it meets is not.
What is added in depth has random matrices, for equal ones may be stored once and then come from a
cache; its norms multiply by zero, and so does the projection of the source's values.
"""

import gc
import re
import shutil
from pathlib import Path

import click
import numpy as np
import openvino as ov
from openvino import opset13 as ops

from ov_specdec.records.files import read_json
from ov_specdec.runner.encoder_decoder import HIDDEN_STATES
from tests.benchmarks.expansion.build import exported
from tests.benchmarks.options import PATH

TIMES, MLP_TIMES = 2, 4
"""How often a channel and a neuron of the decoder are there."""
LAYERS = 32
DECODER, ENCODER = "openvino_decoder_model", "openvino_encoder_model"
LAST_NORM = "model.decoder.layer_norm"


def expanded(small, layers):
    """A Whisper on torch, wider and deeper, that computes what `small` computes."""
    import torch
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = small.config.to_dict()
    for name in (
        "d_model",
        "encoder_attention_heads",
        "decoder_attention_heads",
        "encoder_ffn_dim",
    ):
        config[name] *= TIMES
    config["decoder_ffn_dim"] *= MLP_TIMES
    config["decoder_layers"] = layers
    large = WhisperForConditionalGeneration(WhisperConfig(**config)).eval()
    large.generation_config = small.generation_config
    weights = small.state_dict()
    with torch.no_grad():
        for name, parameter in large.named_parameters():
            if name in weights:
                parameter.copy_(tiled(name, weights[name], parameter.shape))
            elif re.search(r"norm\.weight|encoder_attn\.v_proj|bias", name):
                parameter.zero_()
    return large


def tiled(name, weight, shape):
    """A tensor as often as it fits into `shape`, divided where copies of inputs are added up."""
    times = [wide // narrow for wide, narrow in zip(shape, weight.shape, strict=True)]
    is_matrix = weight.ndim > 1 and "embed" not in name
    halved = TIMES if name.startswith(LAST_NORM) else 1
    return weight.tile(times) / (times[1] if is_matrix else halved)


def narrow_source(path, width):
    """The decoder of an IR, reading what an encoder of this width gives."""
    model = ov.Core().read_model(path)
    wide = model.input(HIDDEN_STATES).get_node()
    narrow = ops.parameter([-1, -1, width], np.float32, name=HIDDEN_STATES)
    narrow.output(0).set_names({HIDDEN_STATES})
    doubled = ops.concat([narrow] * TIMES, axis=-1)
    wide.output(0).set_names(set())
    for target in wide.output(0).get_target_inputs():
        target.replace_source_output(doubled.output(0))
    model.replace_parameter(model.get_parameter_index(wide), narrow)
    model.validate_nodes_and_infer_types()
    return model


@click.command()
@click.argument("checkpoint", type=PATH)
@click.argument("small", type=PATH)
@click.argument("output", type=PATH)
@click.option("--layers", default=LAYERS, show_default=True, help="Of the decoder.")
@click.option("--keep-checkpoint", is_flag=True, help="Keep the checkpoint too, for torch.")
def expand_whisper(
    checkpoint: Path, small: Path, output: Path, layers: int, keep_checkpoint: bool
) -> None:
    """Make a Whisper with the cost of a large one's decoder out of a small one.

    CHECKPOINT: of Whisper base, for torch; SMALL: its int8 export, whose encoder OUTPUT gets, so
    that a draft of its own shares it. With the defaults a pass reads 791 M weights; in large-v3,
    800 M.
    """
    from transformers import WhisperForConditionalGeneration

    source = WhisperForConditionalGeneration.from_pretrained(checkpoint)
    wide = output / "expanded"
    wide.mkdir(parents=True)
    large = expanded(source.float(), layers)
    num_parameters = sum(p.numel() for p in large.model.decoder.parameters())
    click.echo(f"{num_parameters:,} parameters of the decoder")
    large.save_pretrained(wide)
    for path in checkpoint.glob("*.json"):
        if path.name not in ("config.json", "generation_config.json"):
            shutil.copy(path, wide)
    del large
    gc.collect()
    made = exported(wide, "int8", keep_checkpoint=keep_checkpoint)
    model = narrow_source(made / f"{DECODER}.xml", read_json(small / "config.json")["d_model"])
    ov.save_model(model, made / "narrow.xml", compress_to_fp16=False)
    del model
    for suffix in (".xml", ".bin"):
        (made / f"narrow{suffix}").replace(made / f"{DECODER}{suffix}")
        shutil.copy(small / f"{ENCODER}{suffix}", made)
    click.echo(made)
