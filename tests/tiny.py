"""Tiny random checkpoints of several architectures, made on the fly and exported for real."""

import warnings
from pathlib import Path

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gpt2", "gpt_neox", "opt", "bloom", "phi3", "mistral")
VOCAB_SIZE = 320
CONTEXT = 256
EOS = "<eos>"

# Trained on, so that merges exist; any text would do.
SAMPLE = "def area(width, height):\n    return width * height\n\nprint(area(3, 4))\n"


def save_tokenizer(folder: Path, *, sample: str = SAMPLE, vocab_size: int = VOCAB_SIZE) -> None:
    """Save a byte-level BPE with `EOS` as its first token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=1,
        special_tokens=[EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator([sample], trainer)
    PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=EOS).save_pretrained(folder)


def save_checkpoint(
    architecture: str, folder: Path, *, noise: float = 0.0, width: int = VOCAB_SIZE
) -> None:
    """Save a random model, the same for the same architecture, plus noise on its weights.

    noise: standard deviation relative to each weight's own; a little makes a draft that agrees with
    the model without noise sometimes. width: columns of the logits.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    common = {"vocab_size": width, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    common["tie_word_embeddings"] = False  # tied and random, a model just repeats its last token
    heads = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    wide = {**heads, "intermediate_size": 96, "max_position_embeddings": CONTEXT}
    gqa = {**wide, "num_key_value_heads": 2}
    settings = {
        "llama": gqa,
        "qwen2": gqa,
        "qwen3": {**gqa, "head_dim": 16},
        "mistral": {**gqa, "sliding_window": 24},
        "phi3": {**gqa, "sliding_window": None},
        "gpt_neox": wide,
        "gpt2": {"n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT},
        "opt": {**wide, "ffn_dim": 96, "word_embed_proj_dim": 48},
        "bloom": {"hidden_size": 48, "n_layer": 2, "n_head": 4},
    }[architecture]
    torch.manual_seed(1)
    config = AutoConfig.for_model(architecture, **common, **settings)
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                # As initialized, attention hardly looks around and every token repeats itself.
                weight.mul_(4.0).add_(torch.randn_like(weight) * weight.std() * noise)
    model.save_pretrained(folder)
    save_tokenizer(folder)


def export(checkpoint: Path, folder: Path) -> Path:
    """Export a checkpoint through Optimum in this process, weights as they are."""
    from optimum.exporters.openvino import main_export

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tracing warns a dozen times
        main_export(str(checkpoint), str(folder), task="text-generation-with-past", stateful=True)
    return folder


def save_stateless_ir(folder: Path) -> None:
    """Save an IR over token ids that keeps no KV cache."""
    import numpy as np
    import openvino as ov
    from openvino import opset13 as ops

    ids = ops.parameter([-1, -1], np.int64, name="input_ids")
    ids.output(0).tensor.set_names({"input_ids"})
    ov.save_model(ov.Model([ops.convert(ids, "f32")], [ids], "x"), folder / "openvino_model.xml")


def make_pair(architecture: str, folder: Path) -> tuple[Path, Path]:
    """Export a main model and a draft that is the main plus noise; their two folders."""
    folders = []
    for role, noise in (("main", 0.0), ("draft", 0.02)):
        checkpoint = folder / f"{role}-checkpoint"
        save_checkpoint(architecture, checkpoint, noise=noise)
        folders.append(export(checkpoint, folder / role))
    return folders[0], folders[1]
