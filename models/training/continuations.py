"""The main's own continuations, for the draft to learn from: half greedy, half sampled.

Speculative decoding asks the draft about text the main writes, not about the corpus; training on
the teacher's outputs is sequence-level distillation (arXiv:1606.07947, for drafts
arXiv:2310.08461). Result: ``DATA/continuations.tokens``, uint16 rows of ROW + 1 token ids.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from config import arguments, device, say, tokens_file
from torch import Tensor
from transformers import AutoTokenizer, LlamaForCausalLM

ROW = 256
PROMPT_LENGTHS = (4, 16, 64)
TEMPERATURES = (0.0, 1.0)


def load(folder: Path) -> LlamaForCausalLM:
    """A checkpoint ready to be asked, in f32."""
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.to(device()).eval()


def line_starts(ids: np.ndarray, newline: int, length: int) -> np.ndarray:
    """Indices at which a line begins, with ``length`` tokens to follow."""
    starts = np.flatnonzero(ids == newline) + 1
    return starts[starts < len(ids) - length]


def continued(
    model: LlamaForCausalLM, prompts: Tensor, total: int, temperature: float = 0.0
) -> Tensor:
    """Prompts [rows, p] continued to [rows, total], greedily at temperature 0; END ends no row."""
    kind = {"do_sample": True, "temperature": temperature, "top_k": 0} if temperature else {}
    return model.generate(
        prompts,
        attention_mask=torch.ones_like(prompts),
        max_length=total,
        eos_token_id=None,
        pad_token_id=0,
        use_cache=True,
        **{"do_sample": False, **kind},
    )


def corpus_prompts(data: Path, rows: int, seed: int) -> Iterator[Tensor]:
    """Batches of ``rows`` beginnings of lines of the training side, of PROMPT_LENGTHS in turn."""
    tokenizer = AutoTokenizer.from_pretrained(data / "main")
    newline = tokenizer.encode("\n", add_special_tokens=False)[0]
    ids = np.fromfile(tokens_file(data, "train"), dtype=np.uint16)
    starts = line_starts(ids, newline, max(PROMPT_LENGTHS))
    random = np.random.default_rng(seed)
    while True:
        for length in PROMPT_LENGTHS:
            chosen = random.choice(starts, size=rows)
            yield torch.from_numpy(np.stack([ids[s : s + length] for s in chosen]).astype(np.int64))


def continuations_file(data: Path) -> Path:
    """Where the rows of ROW + 1 tokens lie."""
    return data / "continuations.tokens"


def write(data: Path, minutes: float, rows: int = 64, seed: int = 1, total: int = ROW + 1) -> int:
    """Generate batches of ``rows`` for ``minutes``; returns the number of rows written."""
    model = load(data / "main")
    torch.manual_seed(seed)
    made: list[np.ndarray] = []
    end = time.monotonic() + minutes * 60
    for prompts in corpus_prompts(data, rows, seed):
        for temperature in TEMPERATURES:
            out = continued(model, prompts.to(model.device), total, temperature)
            made.append(out.cpu().numpy().astype(np.uint16))
        if time.monotonic() >= end:
            break
    np.concatenate(made).tofile(continuations_file(data))
    say(f"{len(made) * rows} rows of {total} tokens")
    return len(made) * rows


def main() -> None:
    """Write continuations of a trained main."""
    args = arguments(__doc__.split("\n")[0], minutes=5.0).parse_args()
    torch.set_num_threads(args.threads)
    write(args.data, args.minutes)


if __name__ == "__main__":
    main()
