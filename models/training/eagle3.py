"""Train an EAGLE-3 head for the main, within a budget of minutes (arXiv:2503.01840).

It learns the main's distributions on the rows of ``distil.py``. In the training-time test it reads
each row STEPS times: at first with the main's hidden states, then with those that it gave one token
before, as it does with draft tokens. Result: ``DATA/eagle3``, in the format of the paper's authors.
"""

import json
from collections.abc import Callable
from pathlib import Path

import torch
from batches import Batches
from checkpoint import save_state
from config import DRAFT_CONTEXT, arguments, device
from continuations import ROW, load
from distil import Lessons
from head import Mix, head_loss
from log import Log
from safetensors.torch import save_file
from torch import Tensor, nn
from train import begin, hidden_states, rate, steps, update
from transformers import LlamaForCausalLM

from ov_specdec.models.eagle3 import Eagle3Head, Past

STEPS = 3
LATER = 0.8  # weight of each step in the loss, of the one before
SCALE = 1 / 32  # of the main's hidden states, which are large


Ids = Callable[[list[Tensor]], Tensor]
"""The tokens t + 1 + j [rows, n] of step j, by what logits came from in all steps before."""


class Eagle3(nn.Module):
    """A head, and ``fc``, which projects the main's hidden states; begins with the main's head."""

    def __init__(self, main: LlamaForCausalLM) -> None:
        super().__init__()
        own = {"num_hidden_layers": 1, "max_position_embeddings": DRAFT_CONTEXT}
        self.settings = {**main.config.to_dict(), **own, "tie_word_embeddings": False}
        width, layers = main.config.hidden_size, main.config.num_hidden_layers
        size = main.config.vocab_size
        self.read = (2, layers // 2, layers - 3)  # by transformers' index, as published heads do
        self.model = Eagle3Head(self.settings, size, size)
        self.config = self.model.config
        self.fc = nn.Linear(len(self.read) * width, width, bias=False)
        self.model.norm.load_state_dict(main.model.norm.state_dict())
        for module in (self.model.embed_tokens, self.model.lm_head):
            module.load_state_dict({"weight": main.lm_head.weight})
        self.model.embed_tokens.requires_grad_(requires_grad=False)

    def unrolled(self, states: Tensor, ids: Ids, count: int = STEPS) -> list[Tensor]:
        """What logits come from in each step, [rows, n, d]: in step j after token t + 1 + j.

        states: of tokens t, [rows, n, D].
        """
        (rows, size), config, given = states.shape[:2], self.config, []
        empty = states.new_empty(rows, config.num_key_value_heads, 0, config.head_dim)
        past, places = Past([(empty, empty)]), torch.arange(size, device=states.device)
        allowed, own = places <= places[:, None], places == places[:, None]
        hidden = self.fc(SCALE * states)
        for step in range(count):
            mask, positions = allowed[None, None], places[None] + step
            normed, hidden = self.model.read(ids(given), hidden, mask, positions, past)
            given.append(normed)
            allowed = torch.cat([allowed, own], 1)
        return given

    def likeliest(self, given: Tensor) -> Tensor:
        """The likeliest tokens [rows, n] by what logits come from."""
        return (given @ self.model.lm_head.weight.T).argmax(-1)

    def save(self, out: Path) -> None:
        """Save the checkpoint."""
        tensors = {"fc.weight": SCALE * self.fc.weight.detach()}
        for name, value in self.model.state_dict().items():
            tensors[name.replace("layers.0.", "midlayer.")] = value.clone()
        save_file(tensors, out / "model.safetensors")
        own = {
            "architectures": ["LlamaForCausalLMEagle3"],
            "draft_vocab_size": self.settings["vocab_size"],
        }
        (out / "config.json").write_text(json.dumps({**self.settings, **own}, indent=2) + "\n")


def of_text(tokens: Tensor, size: int) -> Ids:
    """Those of a text [rows, length]."""
    return lambda given: tokens[:, 1 + len(given) :][:, :size]


@torch.no_grad()
def agreement(head: Eagle3, main: LlamaForCausalLM, rows: Tensor, count: int) -> list[float]:
    """How often the likeliest token of each step is the main's, on rows [rows, length] of text."""
    states, size = hidden_states(main, rows, layers=(*head.read, -1)), rows.shape[1] - count
    read, last = states.tensor_split([-main.config.hidden_size], -1)
    told = (last @ main.lm_head.weight.T).argmax(-1)
    given = head.unrolled(read[:, :size], of_text(rows, size), count)
    shares = []
    for step, each in enumerate(given):
        same = head.likeliest(each) == told[:, 1 + step :][:, :size]
        shares.append(same.float().mean().item())
    return shares


def train(
    data: Path,
    minutes: float,
    tokens_per_step: int = 2048,
    rates: tuple[float, float] = (0.005, 0.001),
    row: int = ROW,
    save_minutes: float = 4.0,
) -> list[float]:
    """Train for ``minutes``, going on from the last state; returns `agreement` on held-out text."""
    out, main = data / "eagle3", load(data / "main")
    head = Eagle3(main).to(device())
    made, clock = begin(out, head, rates)
    lessons, log = Lessons(data, main, row, (*head.read, -1)), Log(data, "eagle3", clock)
    texts = Batches(data, "heldout").rows(0, 16 * row, row)[:, :-1].to(device())

    def keep() -> list[float]:
        found = agreement(head, main, texts, 2 * STEPS)
        log.write(1, **{f"agree{step}": share for step, share in enumerate(found)})
        save_state(out, head, made, clock)
        head.save(out)
        return found

    for share in steps(clock, minutes):
        tokens, targets, states = lessons.take(clock["tokens"] // row, tokens_per_step // row)
        clock["tokens"] += tokens_per_step
        tokens, targets, states = (each.to(main.device) for each in (tokens, targets, states))
        size, loss = row - STEPS, 0.0
        read, last = states.tensor_split([-main.config.hidden_size], -1)
        for step, given in enumerate(head.unrolled(read[:, :size], of_text(tokens, size))):
            there = slice(1 + step, 1 + step + size)
            told = last[:, there], main.lm_head.weight
            own = head_loss(given, head.model.lm_head.weight, targets[:, there], told, Mix(1.0))
            loss = loss + LATER**step * own
        update(head, made, loss, rate(clock["step"], share))
        if clock["step"] % 20 == 0:
            log.write(1, train=loss.item())
        if clock["seconds"] - clock["saved"] >= save_minutes * 60:
            clock["saved"] = clock["seconds"]
            keep()
    return keep()


def main() -> None:
    """Train a head for the main of a data folder."""
    parser = arguments(__doc__.split("\n")[0], minutes=60.0)
    parser.add_argument("--tokens", type=int, default=2048, help="tokens of text in a step")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    train(args.data, args.minutes, args.tokens)


if __name__ == "__main__":
    main()
