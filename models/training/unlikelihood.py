"""Teach the main not to go round in circles, within a budget of minutes.

A small model that always takes the likeliest token falls into loops. Unlikelihood training on the
model's own text (arXiv:1908.04319): on its greedy continuations, every token that ends a run seen
several times before in the same text costs -log(1 - p). On all other tokens, and on the corpus, KL
holds the model to what it was. In the end the weights are a mean of those before and after
(arXiv:2109.01903), which keeps most of both. It goes on from the checkpoint in ``DATA/main`` and
replaces it.
"""

from pathlib import Path

import numpy as np
import torch
from batches import Batches
from checkpoint import save_model
from config import arguments
from continuations import continued, corpus_prompts, load
from head import Mix, head_loss
from log import Log
from torch import Tensor
from train import heldout_loss, hidden_states, steps, update, with_full_rates
from transformers import LlamaForCausalLM

RUN = 6  # tokens of a run that comes again
ALLOWED = 2  # times that it may have come before
ROW = 128  # tokens of a row: loops begin early
ROWS = 16  # of the main's own text in a step, and as many of the corpus
TAUGHT = 0.4  # weight of what was taught in the mean
FRESH = 128  # rows generated at a time: the text follows what the model has become


def loops(rows: Tensor) -> Tensor:
    """Which tokens [rows, length] end a run of RUN tokens seen more than ALLOWED times before."""
    marked = np.zeros(rows.shape, dtype=bool)
    for row, ids in enumerate(rows.tolist()):
        seen: dict[tuple[int, ...], int] = {}
        for end in range(RUN, len(ids) + 1):
            run = tuple(ids[end - RUN : end])
            marked[row, end - 1] = seen.get(run, 0) > ALLOWED
            seen[run] = seen.get(run, 0) + 1
    return torch.from_numpy(marked)


def unlikelihood(hidden: Tensor, weight: Tensor, chosen: Tensor) -> Tensor:
    """Mean of -log(1 - p) in nats over tokens ``chosen`` [n], n states [n, d]; 0 where n is 0."""
    logp = (hidden @ weight.T).float().log_softmax(-1)
    p = logp.gather(1, chosen.unsqueeze(1)).exp()
    return -torch.log1p(-p.clamp(max=1 - 1e-4)).sum() / max(1, len(chosen))


def step_loss(
    model: LlamaForCausalLM, before: LlamaForCausalLM, rows: Tensor, looping: Tensor
) -> Tensor:
    """The loss over rows [rows, length + 1], of whose tokens some are ``looping`` (same shape)."""
    inputs, targets, looping = rows[:, :-1], rows[:, 1:], looping[:, 1:]
    with torch.no_grad():
        told = hidden_states(before, inputs)[~looping]
    hidden, weight = hidden_states(model, inputs), model.lm_head.weight
    same = head_loss(
        hidden[~looping], weight, targets[~looping], (told, before.lm_head.weight), Mix(forward=1.0)
    )
    return same + unlikelihood(hidden[looping], weight, targets[looping])


def teach(
    data: Path,
    minutes: float,
    learning_rate: float = 0.0002,
    heldout_tokens: int = 32768,
    row: int = ROW,
    fresh: int = FRESH,
) -> float:
    """Train for ``minutes`` with AdamW; returns the held-out loss (nats/token) afterwards."""
    model, before = load(data / "main"), load(data / "main")
    corpus, prompts = Batches(data, seed=200), corpus_prompts(data, fresh, 2)
    adam = torch.optim.AdamW(model.parameters(), learning_rate, (0.9, 0.95), weight_decay=0.0)
    made = with_full_rates([adam])
    clock = {"step": 0, "seconds": 0.0, "tokens": 0}
    log, layers = Log(data, "unlikelihood", clock), len(model.model.layers)
    own: list[tuple[Tensor, Tensor]] = []
    for share in steps(clock, minutes):
        if not own:
            text = continued(model, next(prompts).to(model.device), row + 1)
            marked = loops(text).to(text.device)
            log.write(layers, loops=marked.float().mean().item())
            own = list(zip(text.split(ROWS), marked.split(ROWS), strict=True))
        rows, looping = own.pop()
        others = corpus.rows(clock["tokens"], ROWS * row, row).to(model.device)
        clock["tokens"] += ROWS * row
        fine = torch.zeros_like(others, dtype=torch.bool)
        loss = step_loss(model, before, torch.cat([rows, others]), torch.cat([looping, fine]))
        update(model, made, loss, 1.0 - share)
        if clock["step"] % 20 == 0:
            log.write(layers, train=loss.item())
    with torch.no_grad():
        for old, new in zip(before.parameters(), model.parameters(), strict=True):
            new.copy_(torch.lerp(old, new, TAUGHT))
    final = heldout_loss(model, Batches(data, "heldout"), heldout_tokens, 2 * row)
    log.write(layers, heldout=final)
    save_model(data / "main", model, data)
    return final


def main() -> None:
    """Teach the main of a data folder."""
    args = arguments(__doc__.split("\n")[0], minutes=5.0).parse_args()
    torch.set_num_threads(args.threads)
    teach(args.data, args.minutes)


if __name__ == "__main__":
    main()
