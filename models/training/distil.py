"""Distil the main into the draft, within a budget of minutes.

First plain cross entropy on the corpus (no teacher, so several times the tokens a minute), then
forward KL to the main's distributions (arXiv:1503.02531, arXiv:2310.08461) mixed with cross
entropy, half of each batch from the corpus and half the main's own continuations. The draft's
embedding begins as the main's, projected on its principal directions. Result: ``DATA/draft``.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from batches import Batches
from checkpoint import save_model
from config import SHAPES, say
from continuations import ROW, continuations_file, load
from head import head_loss
from torch import Tensor
from train import build, heldout_loss, hidden_states, optimizers, rate, report, steps, update
from transformers import LlamaConfig, LlamaForCausalLM

ALONE = 0.2  # share of the budget without the teacher
MIX = 0.9  # share of KL in the loss after that


def from_principal(embedding: Tensor, width: int) -> Tensor:
    """The embedding [V, D] in its first ``width`` principal directions, [V, width].

    Scaled so that the root mean square of its entries is the original's.
    """
    _, _, directions = torch.linalg.svd(embedding, full_matrices=False)
    reduced = embedding @ directions[:width].T
    return reduced * (embedding.square().mean() / reduced.square().mean()).sqrt()


def start(teacher: LlamaForCausalLM, shape: LlamaConfig) -> LlamaForCausalLM:
    """A fresh draft whose embedding is the main's reduced one."""
    draft = build(shape, shape.num_hidden_layers).to(teacher.device)
    with torch.no_grad():
        embedding = teacher.model.embed_tokens.weight.float()
        draft.model.embed_tokens.weight.copy_(from_principal(embedding, shape.hidden_size))
    return draft


class Continuations:
    """Batches of the main's own rows, in a fixed random order, again from the start at the end."""

    def __init__(self, data: Path, row: int = ROW) -> None:
        rows = np.fromfile(continuations_file(data), dtype=np.uint16).reshape(-1, row + 1)
        self.rows = np.random.default_rng(0).permutation(rows)

    def take(self, first: int, count: int) -> tuple[Tensor, Tensor]:
        """Inputs and next tokens, both [count, row]."""
        index = np.arange(first, first + count) % len(self.rows)
        rows = torch.from_numpy(self.rows[index].astype(np.int64))
        return rows[:, :-1], rows[:, 1:]


def batch(
    corpus: Batches, own: Continuations, taken: int, chunks: int, row: int
) -> tuple[Tensor, Tensor]:
    """``chunks`` chunks of the corpus and as many tokens of continuations, [rows, row] each."""
    inputs, targets = corpus.take(taken, chunks, row)
    more, next_tokens = own.take(taken * len(inputs) // chunks, len(inputs))
    return torch.cat([inputs, more]), torch.cat([targets, next_tokens])


def distil(
    data: Path,
    minutes: float,
    shape: LlamaConfig | None = None,
    chunks_per_step: int = 4,
    rates: tuple[float, float] = (0.005, 0.003),
    heldout_chunks: int = 16,
    row: int = ROW,
) -> float:
    """Train the draft from the main in ``DATA/main``; returns its held-out loss (nats/token).

    ``rates`` are the full learning rates of Muon and of AdamW.
    """
    teacher = load(data / "main")
    draft = start(teacher, shape or SHAPES["draft"])
    corpus, own = Batches(data, seed=100), Continuations(data, row)
    made = optimizers(draft, *rates)
    clock = {"step": 0, "seconds": 0.0, "chunks": 0}
    for share in steps(clock, minutes):
        guided = share >= ALONE
        if guided:
            half = chunks_per_step // 2
            inputs, targets = batch(corpus, own, clock["chunks"] // 2, half, row)
        else:
            inputs, targets = corpus.take(clock["chunks"], chunks_per_step, row)
        inputs, targets = inputs.to(draft.device), targets.to(draft.device)
        clock["chunks"] += chunks_per_step
        told = None
        if guided:
            with torch.no_grad():
                told = (hidden_states(teacher, inputs), teacher.lm_head.weight)
        hidden = hidden_states(draft, inputs)
        loss = head_loss(hidden, draft.lm_head.weight, targets, told, MIX if guided else 0.0)
        update(draft, made, loss, rate(clock["step"], share))
        if clock["step"] % 20 == 0:
            report(clock, len(draft.model.layers), loss.item())
    final = heldout_loss(draft, Batches(data, "heldout"), heldout_chunks, row)
    say(f"final held out {final:.4f} after {clock['step']} steps")
    save_model(data / "draft", draft, data)
    return final


def main() -> None:
    """Distil the main of a data folder."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the trained main")
    parser.add_argument("--minutes", type=float, default=10.0, help="budget of training time")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    distil(args.data, args.minutes)


if __name__ == "__main__":
    main()
