"""Tiny random encoder-decoder models, exported for real, and what torch generates from them."""

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.tiny import VOCAB_SIZE, MadeModels, export, save_noisy, save_tokenizer

TEXT = ("t5", "bart", "mbart", "pegasus", "m2m_100")
NUM_IDS = 290
"""Columns of the logits that the tokenizer has a token for."""

SOURCES = ([20, 21, 22, 23, 24, 25, 26, 27] * 2, [280, 17, 200] * 12)
NUM_TOKENS = 40
START, PAD, BOS = 2, 1, 3

HEADS = {
    **{f"{part}_layers": 2 for part in ("encoder", "decoder")},
    **{f"{part}_attention_heads": 4 for part in ("encoder", "decoder")},
    **{f"{part}_ffn_dim": 96 for part in ("encoder", "decoder")},
    "d_model": 48,
    "max_position_embeddings": 128,
}
SETTINGS = {
    "t5": {"d_model": 48, "d_kv": 12, "d_ff": 96, "num_layers": 2, "num_heads": 4},
    **dict.fromkeys(("bart", "mbart", "pegasus", "m2m_100"), HEADS),
}


def make_encoder_decoder(architecture: str, folder: Path) -> None:
    """Fill the folder of `MadeModels`; expected are outputs for each of `SOURCES`."""
    made = MadeModels(folder)
    save_checkpoint(architecture, made.checkpoint)
    export(made.checkpoint, made.main, "text2text-generation")
    shutil.copytree(made.main, made.draft)
    for part in ("encoder", "decoder"):
        file = f"openvino_{part}_model.xml"
        save_noisy(made.main / file, made.draft / file, 0.1)
    outputs = [reference(made.checkpoint, source) for source in SOURCES]
    (folder / "expected.json").write_text(json.dumps(outputs))


def save_checkpoint(architecture: str, folder: Path) -> None:
    """Save a random model, the same for the same architecture."""
    import torch
    from transformers import AutoConfig, AutoModelForSeq2SeqLM

    common = {
        **{"vocab_size": VOCAB_SIZE, "eos_token_id": 0, "forced_eos_token_id": None},
        **{"pad_token_id": PAD, "decoder_start_token_id": START, "bos_token_id": BOS},
        "tie_word_embeddings": False,
    }
    torch.manual_seed(1)
    config = AutoConfig.for_model(architecture, **common, **SETTINGS[architecture])
    model = AutoModelForSeq2SeqLM.from_config(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            # As initialized, attention hardly looks around and every token repeats itself,
            # whatever the source is.
            if weight.dim() > 1 and architecture == "t5":
                weight.mul_(0.1 if "shared" in name else 3.0)
            elif weight.dim() > 1:
                weight.mul_(4.0)
    model.save_pretrained(folder)
    save_tokenizer(folder)


@cache
def load_checkpoint(checkpoint: Path) -> Any:
    """A checkpoint on torch."""
    from transformers import AutoModelForSeq2SeqLM

    return AutoModelForSeq2SeqLM.from_pretrained(checkpoint).eval()


def reference(checkpoint: Path, source: list[int], **options: object) -> list[int]:
    """`NUM_TOKENS` tokens, decoded greedily by transformers on torch."""
    import torch
    from transformers import GenerationConfig

    given = {"max_new_tokens": NUM_TOKENS, "decoder_start_token_id": START, "pad_token_id": PAD}
    given["suppress_tokens"] = list(range(NUM_IDS, VOCAB_SIZE))
    config = GenerationConfig(**given, **options)
    ids = torch.tensor([source])
    with torch.no_grad():
        return load_checkpoint(checkpoint).generate(ids, generation_config=config)[0, 1:].tolist()
