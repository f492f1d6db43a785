"""Distil the main into the draft, within a budget of minutes.

First plain cross entropy on the corpus (no teacher, so several times the tokens a minute), then KL
to the main's distributions (arXiv:1503.02531, arXiv:2310.08461) mixed with cross entropy, on rows
of the corpus and on the main's own continuations, with a step of cross entropy on longer rows now
and then. What the main makes of a row is computed when the row is first met and kept. The draft's
embedding begins as the main's, projected on its principal directions. Result: ``DATA/draft``.
"""

from pathlib import Path

import numpy as np
import torch
from batches import Batches
from checkpoint import save_model
from config import SHAPES, arguments, say
from continuations import ROW, continuations_file, load
from head import Mix, head_loss
from log import Log
from torch import Tensor
from train import build, heldout_loss, hidden_states, optimizers, rate, steps, update
from transformers import LlamaConfig, LlamaForCausalLM

ALONE = 0.2  # share of the budget without the teacher
LONG = 1024  # tokens of a row without the teacher, so that the draft holds on longer texts too
EVERY = 4  # of so many later steps, one without the teacher
CORPUS = 2  # rows of the corpus to one of the main's own
TEXT = 0.1  # share of cross entropy in the loss after that


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


class Lessons:
    """Rows with the main's last hidden states: its own, and CORPUS times as many of the corpus."""

    def __init__(self, data: Path, teacher: LlamaForCausalLM, row: int, seed: int = 100) -> None:
        own = np.fromfile(continuations_file(data), dtype=np.uint16).reshape(-1, row + 1)
        corpus = Batches(data, seed=seed).rows(0, CORPUS * len(own) * row, row)
        both = torch.cat([torch.from_numpy(own.astype(np.int64)), corpus])
        order = torch.randperm(len(both), generator=torch.Generator().manual_seed(seed))
        self.rows, self.teacher = both[order], teacher
        width = teacher.config.hidden_size
        self._hidden = torch.empty(len(both), row, width, dtype=torch.bfloat16)
        self._known = 0  # rows whose states are kept; the first pass goes through them in order

    def take(self, first: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs and next tokens [count, row] and states [count, row, D], from row ``first`` on."""
        index = torch.arange(first, first + count) % len(self.rows)
        rows = self.rows[index]
        if self._known < len(self.rows):
            with torch.no_grad():
                states = hidden_states(self.teacher, rows[:, :-1].to(self.teacher.device))
            self._hidden[index] = states.to("cpu", torch.bfloat16)
            self._known += count
        return rows[:, :-1], rows[:, 1:], self._hidden[index].float()


def distil(
    data: Path,
    minutes: float,
    shape: LlamaConfig | None = None,
    tokens_per_step: int = 4096,
    rates: tuple[float, float] = (0.005, 0.003),
    heldout_tokens: int = 32768,
    row: int = ROW,
    long: int = LONG,
    reverse: float = 0.0,
) -> float:
    """Train the draft from the main in ``DATA/main``; returns its held-out loss (nats/token).

    ``rates`` are the full learning rates of Muon and of AdamW, ``reverse`` the share of reverse
    KL among the divergences.
    """
    teacher = load(data / "main")
    draft = start(teacher, shape or SHAPES["draft"])
    corpus, lessons = Batches(data, seed=50), Lessons(data, teacher, row)
    guided = Mix(forward=(1 - TEXT) * (1 - reverse), reverse=(1 - TEXT) * reverse)
    made, heldout = optimizers(draft, *rates), Batches(data, "heldout")
    read = taken = 0  # tokens of the corpus, rows of lessons
    clock = {"step": 0, "seconds": 0.0, "tokens": 0}
    log, layers = Log(data, "draft", clock), len(draft.model.layers)
    for share in steps(clock, minutes):
        told, mix = None, Mix()
        if share < ALONE or clock["step"] % EVERY == 0:
            inputs, targets = corpus.take(read, tokens_per_step, long)
            read += tokens_per_step
        else:
            inputs, targets, states = lessons.take(taken, tokens_per_step // row)
            told, mix = (states.to(draft.device), teacher.lm_head.weight), guided
            taken += len(inputs)
        clock["tokens"] += tokens_per_step
        inputs, targets = inputs.to(draft.device), targets.to(draft.device)
        hidden = hidden_states(draft, inputs)
        loss = head_loss(hidden, draft.lm_head.weight, targets, told, mix)
        update(draft, made, loss, rate(clock["step"], share))
        if clock["step"] % 20 == 0:
            log.write(layers, train=loss.item())
        if clock["step"] % 200 == 0:
            log.write(layers, heldout=heldout_loss(draft, heldout, heldout_tokens, row))
    final = heldout_loss(draft, heldout, heldout_tokens, row)
    log.write(layers, heldout=final)
    say(f"{taken} rows of {len(lessons.rows)} lessons")
    save_model(data / "draft", draft, data)
    return final


def main() -> None:
    """Distil the main of a data folder."""
    parser = arguments(__doc__.split("\n")[0], minutes=33.0)
    parser.add_argument("--reverse", type=float, default=0.0, help="share of reverse KL, 0 to 1")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    distil(args.data, args.minutes, reverse=args.reverse)


if __name__ == "__main__":
    main()
