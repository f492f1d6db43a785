"""What the training scripts share: shapes, special token, file names under the data folder."""

import argparse
import copy
import sys
from pathlib import Path

import torch
from transformers import LlamaConfig

VOCABULARY = 4096
END = "<|endoftext|>"
CONTEXT = 2048
DRAFT_CONTEXT = 256  # it was trained with 2,048; its draft tokens are as good, and it reads less
HEAD_SIZE = 64

PROMPTS = ("def fibonacci(n):", "def quicksort(xs):", "class Stack:", "import argparse")

# Small packages of plain algorithms: seen this many times for once of every other file.
REPEATS = {"algorithms": 3, "pygorithm": 3}


def llama(
    layers: int, hidden: int, heads: int, kv_heads: int, mlp: int, context: int = CONTEXT
) -> LlamaConfig:
    """A Llama configuration with tied embeddings and the shared vocabulary."""
    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        intermediate_size=mlp,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=HEAD_SIZE,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )


# The main is deep and narrow so that one of its passes costs about ten of the draft's.
SHAPES = {
    "main": llama(layers=16, hidden=384, heads=6, kv_heads=2, mlp=1024),
    "draft": llama(layers=2, hidden=256, heads=4, kv_heads=2, mlp=704, context=DRAFT_CONTEXT),
    # Its pass is paid once a round rather than once a token, so it may be twice as deep.
    "parallel": llama(layers=4, hidden=256, heads=4, kv_heads=2, mlp=704, context=DRAFT_CONTEXT),
}
MASK = VOCABULARY  # of the parallel draft, behind the tokenizer's ids
SHAPES["parallel"].update({"vocab_size": VOCABULARY + 1, "pard_token": MASK})
READ = [2, 8, 13]  # the main's hidden states that drafts read, by transformers' index
# Those are hundreds of times as large as embeddings.
SHAPES["pard2"] = copy.deepcopy(SHAPES["parallel"])
SHAPES["pard2"].update({"spd_type": "pard2", "pard2_scale": 0.002, "pard2_target_layers": READ})


def tokens_file(data: Path, side: str) -> Path:
    """The token ids of one side ("train" or "heldout"), uint16, files ended by END."""
    return data / f"{side}.tokens"


def say(text: str) -> None:
    """One line on the standard output, at once: the logs of long runs are read while they run."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def arguments(description: str, minutes: float) -> argparse.ArgumentParser:
    """What every step with a budget of time is told: its data, the budget, the threads."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, required=True, help="folder with all that was built")
    parser.add_argument("--minutes", type=float, default=minutes, help="budget of time")
    parser.add_argument("--threads", type=int, default=2)
    return parser


def device() -> torch.device:
    """CUDA where there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
