"""Distil the main into the draft, within a budget of minutes.

First plain cross entropy on the corpus (no teacher, so several times the tokens a minute), then KL
to the main's distributions (arXiv:1503.02531, arXiv:2310.08461) mixed with cross entropy, on rows
of the corpus and on the main's own continuations, with a step of cross entropy on longer rows now
and then. What the main makes of a row is computed when the row is first met and kept. The draft's
embedding begins as the main's, projected on its principal directions. Result: ``DATA/draft``.

``--model parallel`` goes on from that draft to one that gives several tokens a pass: it gets twice
the layers and a token for masks, and is taught on rows with masks alone. ``--model pard2`` does the
same, and adds the main's hidden states to the embeddings. Result: ``DATA/{parallel,pard2}``.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from batches import Batches
from checkpoint import save_model, save_state
from config import SHAPES, arguments, device, say
from continuations import ROW, continuations_file, load
from head import Mix, head_loss
from log import Log
from masks import MASKS, Layout
from torch import Tensor, nn
from train import begin, build, grow, head, heldout_loss, hidden_states, rate, steps, update
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


@torch.no_grad()
def start(draft: LlamaForCausalLM, teacher: LlamaForCausalLM) -> None:
    """Begin with the main's reduced embedding."""
    embedding = teacher.model.embed_tokens.weight.float()
    draft.model.embed_tokens.weight.copy_(from_principal(embedding, draft.config.hidden_size))


@torch.no_grad()
def start_parallel(draft: LlamaForCausalLM, before: LlamaForCausalLM) -> None:
    """Begin with another draft, and its mean embedding for the mask."""
    grow(before, len(draft.model.layers))
    weights, name = before.model.state_dict(), "embed_tokens.weight"
    weights[name] = torch.cat([weights[name], weights[name].mean(0, keepdim=True)])
    draft.model.load_state_dict(weights)


def add_projection(draft: LlamaForCausalLM, width: int) -> None:
    """Give a draft of PARD-2 the projection of features of this width; it adds nothing yet."""
    draft.target_proj = nn.Linear(width, draft.config.hidden_size, bias=False)
    nn.init.zeros_(draft.target_proj.weight)


def before(states: Tensor, layout: Layout) -> Tensor:
    """Features [rows, n, D] of PARD-2: states [rows, length, D] of the token before, at first 0.

    Masks repeat those of their text's last token.
    """
    zeros = torch.zeros_like(states[:, :1])
    return torch.cat([zeros, states], 1)[:, layout.positions - layout.depths]


class Lessons:
    """Rows with hidden states of the main: its own, and CORPUS times as many of the corpus.

    layers: those of `hidden_states`.
    """

    def __init__(
        self,
        data: Path,
        teacher: LlamaForCausalLM,
        row: int,
        layers: Sequence[int] = (-1,),
        seed: int = 100,
    ) -> None:
        own = np.fromfile(continuations_file(data), dtype=np.uint16).reshape(-1, row + 1)
        corpus = Batches(data, seed=seed).rows(0, CORPUS * len(own) * row, row)
        both = torch.cat([torch.from_numpy(own.astype(np.int64)), corpus])
        order = torch.randperm(len(both), generator=torch.Generator().manual_seed(seed))
        self.rows, self.teacher, self.layers = both[order], teacher, layers
        width = teacher.config.hidden_size * len(layers)
        self._hidden = torch.empty(len(both), row, width, dtype=torch.bfloat16)
        self._known = 0  # rows whose states are kept; the first pass goes through them in order

    def take(self, first: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs and next tokens [count, row] and states [count, row, D], from row ``first`` on."""
        index = torch.arange(first, first + count) % len(self.rows)
        rows = self.rows[index]
        if self._known < len(self.rows):
            with torch.no_grad():
                inputs = rows[:, :-1].to(self.teacher.device)
                states = hidden_states(self.teacher, inputs, layers=self.layers)
            self._hidden[index] = states.to("cpu", torch.bfloat16)
            self._known += count
        return rows[:, :-1], rows[:, 1:], self._hidden[index].float()


@torch.no_grad()
def agreement(
    draft: LlamaForCausalLM, teacher: LlamaForCausalLM, rows: Tensor, mask: int, every: int = 8
) -> dict[str, float]:
    """How often the likeliest token is the main's, by depth, on rows [rows, length] of text."""
    length = rows.shape[1]
    layout = Layout.chained(length, [torch.arange(0, length - MASKS, every)] * MASKS)
    read = getattr(draft.config, "pard2_target_layers", ())
    states = hidden_states(teacher, rows, layers=(*read, -1))
    features, states = states.tensor_split([len(read) * teacher.config.hidden_size], -1)
    told = states.float() @ teacher.lm_head.weight.T
    features = before(features, layout) if read else None
    inputs = layout.fill(rows, mask)
    given = hidden_states(draft, inputs, layout, features=features).float() @ head(draft).T
    same = (told.argmax(-1)[:, layout.positions] == given.argmax(-1)).float()
    return {f"agree{j}": same[:, layout.depths == j].mean().item() for j in range(MASKS + 1)}


def distil(
    data: Path,
    minutes: float,
    name: str = "draft",
    shape: LlamaConfig | None = None,
    tokens_per_step: int = 4096,
    rates: tuple[float, float] = (0.005, 0.003),
    heldout_tokens: int = 32768,
    row: int = ROW,
    long: int = LONG,
    reverse: float = 0.0,
    save_minutes: float = 10.0,
) -> float:
    """Train a draft (going on from its last state) from the main in ``DATA/main``.

    Returns its held-out loss (nats/token). ``rates`` are the full learning rates of Muon and of
    AdamW, ``reverse`` the share of reverse KL among the divergences.
    """
    out, shape, teacher = data / name, shape or SHAPES[name], load(data / "main")
    layers, mask = shape.num_hidden_layers, getattr(shape, "pard_token", None)
    features_of = getattr(shape, "pard2_target_layers", ())
    width = len(features_of) * teacher.config.hidden_size
    draft = build(shape, layers).to(device())
    if features_of:
        add_projection(draft, width)
    made, clock = begin(out, draft, rates)
    if not clock["step"] and mask:
        start_parallel(draft, load(data / "draft"))
    elif not clock["step"]:
        start(draft, teacher)
    corpus, lessons = Batches(data, seed=50), Lessons(data, teacher, row, (*features_of, -1))
    guided = Mix(forward=(1 - TEXT) * (1 - reverse), reverse=(1 - TEXT) * reverse)
    heldout, log = Batches(data, "heldout"), Log(data, name, clock)

    def keep() -> float:
        loss = heldout_loss(draft, heldout, heldout_tokens, row)
        texts = heldout.rows(0, min(heldout_tokens, 64 * row), row)[:, :-1].to(draft.device)
        log.write(layers, heldout=loss, **(agreement(draft, teacher, texts, mask) if mask else {}))
        save_state(out, draft, made, clock)
        save_model(out, draft, data)
        if features_of:
            weights = {"target_proj.weight": draft.target_proj.weight.detach()}
            torch.save(weights, out / "warp_model.bin")
        return loss

    for share in steps(clock, minutes):
        told, mix, layout, added = None, Mix(), None, None
        # A parallel draft is made of one that holds on longer texts, and reads only the latest.
        if not mask and (share < ALONE or clock["step"] % EVERY == 0):
            read = clock["tokens"] - clock["taught"]
            inputs, targets = corpus.take(read, tokens_per_step, long)
        else:
            first, count = clock["taught"] // row, tokens_per_step // row
            inputs, targets, states = lessons.take(first, count)
            features, states = states.tensor_split([width], -1)
            clock["taught"] += tokens_per_step
            if mask:
                layout = Layout.drawn(row, seed=clock["step"])
                inputs = layout.fill(inputs, mask)
                added = before(features, layout).to(draft.device) if features_of else None
                targets, states = targets[:, layout.positions], states[:, layout.positions]
            told, mix = (states.to(draft.device), teacher.lm_head.weight), guided
        clock["tokens"] += tokens_per_step
        inputs, targets = inputs.to(draft.device), targets.to(draft.device)
        given = hidden_states(draft, inputs, layout, features=added)
        loss = head_loss(given, head(draft), targets, told, mix)
        update(draft, made, loss, rate(clock["step"], share))
        if clock["step"] % 20 == 0:
            log.write(layers, train=loss.item())
        if clock["seconds"] - clock["saved"] >= save_minutes * 60:
            clock["saved"] = clock["seconds"]
            keep()
    say(f"{clock['taught'] // row} rows of {len(lessons.rows)} lessons")
    return keep()


def main() -> None:
    """Distil the main of a data folder."""
    parser = arguments(__doc__.split("\n")[0], minutes=33.0)
    parser.add_argument("--model", choices=("draft", "parallel", "pard2"), default="draft")
    parser.add_argument("--tokens", type=int, default=4096, help="tokens of text in a step")
    parser.add_argument("--reverse", type=float, default=0.0, help="share of reverse KL, 0 to 1")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    distil(args.data, args.minutes, args.model, tokens_per_step=args.tokens, reverse=args.reverse)


if __name__ == "__main__":
    main()
