"""Tiny random hybrids, kept under tests/data/hybrid, and how they are made.

Optimum exports their families only with versions of transformers that the package itself does not
take. So the models are kept, with what transformers generates from them, and made anew with

    python -m tests.support.tiny_hybrid tests/data/hybrid FAMILY...

in an environment with the version in `VERSIONS`. `python -m tests.support.kept` compares them.
"""

import json
import random
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import openvino as ov
from openvino import opset13 as ops

from tests.support.tiny import KeptModels, export, reference, save_tokenizer

IR = "openvino_model.xml"
KEPT = (
    *(IR, "openvino_model.bin", "config.json", "generation_config.json"),
    *("tokenizer.json", "tokenizer_config.json"),
)

FOLDER = Path(__file__).parents[1] / "data" / "hybrid"

VERSIONS = {
    "lfm2": "5.2",
    "qwen3_5_text": "5.2",
    "qwen3_next": "4.57",
}
"""Families, and the transformers that Optimum exports them with."""

PAGED = ("lfm2", "qwen3_5_text", "qwen3_next")
"""Families whose states OpenVINO pages."""

VOCAB_SIZE = 320
LENGTHS = (5, 37, 150)
"""Tokens of the prompts. The longest one is read in chunks where a test makes them small."""
NUM_TOKENS = 60

COMMON = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}
DELTA_NET = {
    **COMMON,
    "head_dim": 16,
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "num_hidden_layers": 3,
}
SETTINGS = {
    "lfm2": {
        **COMMON,
        "layer_types": ["conv", "full_attention", "conv"],
        "num_hidden_layers": 3,
        "block_ff_dim": 48,
        "block_auto_adjust_ff_dim": False,
    },
    "qwen3_5_text": DELTA_NET,
    "qwen3_next": {
        **DELTA_NET,
        "num_experts": 2,
        "num_experts_per_tok": 1,
        "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 16,
    },
}


def open_hybrid(family: str, target: Path) -> KeptModels:
    """A copy, for a test to do with as it likes, and a draft made of it."""
    hybrid = KeptModels(Path(shutil.copytree(FOLDER / family, target)))
    shutil.copytree(hybrid.main, hybrid.draft)
    model = ov.Core().read_model(hybrid.main / IR)
    add_noise(model, 0.03)
    ov.save_model(model, hybrid.draft / IR, compress_to_fp16=False)
    return hybrid


def add_noise(model: ov.Model, noise: float) -> None:
    """Change the weights of matrices by part of their own standard deviation.

    Granite's convolution is there twice, for single tokens and for several: both stay the same.
    """
    generator, drawn = np.random.default_rng(1), dict[bytes, np.ndarray]()
    for node in model.get_ops():
        if node.get_type_name() == "Constant" and node.get_element_type() == ov.Type.f32:
            weights = node.get_data()
            if weights.ndim > 1 and weights.size > 100:
                if (content := weights.tobytes()) not in drawn:
                    drawn[content] = generator.standard_normal(weights.size)
                own = drawn[content].reshape(weights.shape)
                changed = weights + own * weights.std() * noise
                constant = ops.constant(changed.astype(np.float32))
                for reader in node.output(0).get_target_inputs():
                    reader.replace_source_output(constant.output(0))


def prompts() -> list[list[int]]:
    """Random ids, the longer ones with repetitions, as quoting texts have them."""
    generator = random.Random(1)  # noqa: S311
    ids = [generator.choices(range(1, VOCAB_SIZE - 30), k=length) for length in LENGTHS]
    ids[1][20:30] = ids[1][5:15]
    return ids


def save_checkpoint(family: str, folder: Path) -> None:
    """Save a random model, the same for the same family."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(1)
    config = AutoConfig.for_model(family, **SETTINGS[family])
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.mul_(4.0)  # as initialized, every token repeats itself
    model.save_pretrained(folder)
    save_tokenizer(folder, vocab_size=VOCAB_SIZE)


def make(family: str, target: Path) -> None:
    """Fill the folder of a `KeptModels`."""
    with tempfile.TemporaryDirectory() as made:
        checkpoint, main = Path(made) / "checkpoint", target / "main"
        save_checkpoint(family, checkpoint)
        exported = export(checkpoint, Path(made) / "main")
        outputs = [(ids, reference(checkpoint, ids, NUM_TOKENS)) for ids in prompts()]
        shutil.rmtree(target, ignore_errors=True)
        main.mkdir(parents=True)
        for name in KEPT:
            shutil.copy(exported / name, main)
        (target / "expected.json").write_text(json.dumps(outputs) + "\n")


if __name__ == "__main__":
    folder, *families = sys.argv[1:]
    for family in families:
        make(family, Path(folder) / family)
