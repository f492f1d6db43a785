"""Tiny random models with windows, chunks and borders, kept under tests/data/windows.

Optimum exports some of their families only with versions of transformers that the package itself
does not take. So the models are kept, with what transformers generates from them, and made anew
with

    python -m tests.support.tiny_windows tests/data/windows FAMILY...

in an environment with the version in `VERSIONS`. `python -m tests.support.kept` compares them.
"""

import json
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.families.settings import LONGROPE, WINDOW
from tests.support.tiny import VOCAB_SIZE, KeptModels, export, reference, save_tokenizer

FOLDER = Path(__file__).parents[1] / "data" / "windows"

VERSIONS = {
    "gemma3_text": "5.0",
    "gpt_neo": "5.5",
    "gpt_oss": "5.5",
    "llama4_text": "4.57",
    "phi3": "5.5",
}
"""Families, and the transformers that Optimum exports them with."""

LENGTHS = (20, 37, 150)
"""Tokens of the prompts; all outputs end beyond the window."""
NUM_TOKENS = 60

COMMON: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}
WINDOWS = {"sliding_window": WINDOW, "num_hidden_layers": 2}
EXPERTS = {"num_local_experts": 2, "num_experts_per_tok": 1}
SETTINGS: dict[str, dict[str, Any]] = {
    "gemma3_text": {
        **COMMON,
        **WINDOWS,
        "layer_types": ["sliding_attention", "full_attention"],
        "query_pre_attn_scalar": 16,
    },
    "gpt_neo": {
        **COMMON,
        "num_layers": 2,
        "num_heads": 2,
        "attention_types": [[["global", "local"], 1]],
        "window_size": WINDOW,
    },
    "gpt_oss": {
        **COMMON,
        **WINDOWS,
        **EXPERTS,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "phi3": {
        **COMMON,
        "num_hidden_layers": 2,
        "sliding_window": None,
        **LONGROPE,
    },
    "llama4_text": {
        **COMMON,
        **EXPERTS,
        "intermediate_size_mlp": 48,
        "num_hidden_layers": 2,
        "attention_chunk_size": WINDOW,
        "no_rope_layers": [1, 0],
        "moe_layers": [1],
    },
}

KEPT = (
    "openvino_model.bin",
    "openvino_model.xml",
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
)


def open_kept(family: str, target: Path) -> KeptModels:
    """A copy, for a test to do with as it likes.

    The draft's graph is the main model's, so that only its weights are kept.
    """
    models = KeptModels(Path(shutil.copytree(FOLDER / family, target)))
    for file in models.main.iterdir():
        if not (models.draft / file.name).exists():
            shutil.copy(file, models.draft)
    return models


def prompts() -> list[list[int]]:
    """Random ids, the longer ones with repetitions, as quoting texts have them."""
    generator = random.Random(1)  # noqa: S311
    ids = [generator.choices(range(1, 290), k=length) for length in LENGTHS]
    ids[1][20:30] = ids[1][5:15]
    return ids


def save_checkpoint(family: str, folder: Path, noise: float) -> None:
    """Save a random model, the same for the same family, plus noise on its weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(1)
    config = AutoConfig.for_model(family, **SETTINGS[family])
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                # As initialized, attention hardly looks around and every token repeats itself.
                weight.normal_(0, 4.0 * config.initializer_range)
                weight.add_(torch.randn_like(weight) * weight.std() * noise)
    model.save_pretrained(folder)
    save_tokenizer(folder)


def make(family: str, target: Path) -> None:
    """Fill the folder of a `KeptModels`."""
    with tempfile.TemporaryDirectory() as made:
        checkpoint = Path(made) / "checkpoint"
        save_checkpoint(family, checkpoint, noise=0.0)
        main = export(checkpoint, Path(made) / "main")
        outputs = [(ids, reference(checkpoint, ids, NUM_TOKENS)) for ids in prompts()]
        save_checkpoint(family, checkpoint, noise=0.03)
        draft = export(checkpoint, Path(made) / "draft")
        shutil.rmtree(target, ignore_errors=True)
        for folder, kept in ((main, KEPT), (draft, KEPT[:1])):
            (target / folder.name).mkdir(parents=True)
            for name in kept:
                shutil.copy(folder / name, target / folder.name)
        (target / "expected.json").write_text(json.dumps(outputs) + "\n")


if __name__ == "__main__":
    folder, *families = sys.argv[1:]
    for family in families:
        make(family, Path(folder) / family)
