"""Begin from the pair that ships: its checkpoints and tokenizer, to train a further draft with.

The main's weights are those of the int8 model, dequantized, so that a draft learns from exactly the
distributions it will be verified against. Result: ``DATA/{main,draft,tokenizer}``, and the corpus
encoded as ``DATA/{train,heldout}.tokens``.
"""

import argparse
import shutil
import sys
from pathlib import Path

import openvino as ov
import torch
from checkpoint import save_model
from tokenizer import write_tokens
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

MODELS = Path(__file__).resolve().parent.parent
sys.path.append(str(MODELS.parent))

from lab.benchmarks.expansion.ir_weights import read_weights  # noqa: E402 - needs the path
from lab.benchmarks.expansion.shape import LlamaShape  # noqa: E402 - needs the path


def dequantized(folder: Path) -> LlamaForCausalLM:
    """A Llama in f32 of the weights that an exported one computes with."""
    config = LlamaConfig.from_pretrained(folder)
    exported = ov.Core().read_model(folder / "openvino_model.xml")
    weights = read_weights(exported, LlamaShape.from_config(config.to_dict()))
    model = LlamaForCausalLM(config).float()
    tensors = {name: torch.from_numpy(array) for name, array in weights.items()}
    missing = model.load_state_dict(tensors, strict=False)
    if missing.unexpected_keys or set(missing.missing_keys) - {"lm_head.weight"}:
        raise SystemExit(f"{folder} does not hold this model: {missing}")
    return model


def write(data: Path) -> None:
    """Fill ``data`` from the shipped pair."""
    target = data / "tokenizer"
    target.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(MODELS / "main" / name, target / name)
    draft = LlamaForCausalLM.from_pretrained(MODELS / "checkpoint", dtype=torch.float32)
    for name, model in (("main", dequantized(MODELS / "main")), ("draft", draft)):
        save_model(data / name, model, data)
    write_tokens(data, PreTrainedTokenizerFast.from_pretrained(target))


def main() -> None:
    """Fill a data folder that corpus.py has filled."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder that corpus.py filled")
    write(parser.parse_args().data)


if __name__ == "__main__":
    main()
