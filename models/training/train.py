"""Train a model of the pair on the corpus from nothing, within a budget of minutes.

Every schedule (learning rate, depth, row length) follows the share of the budget that is spent,
so that a run on a slow or shared machine still completes its schedule. Matrices inside the layers
take Muon, the embedding and the norms AdamW. The depth grows by stacking (arXiv:2011.13635): a
shallow model sees several times the tokens a minute. Checkpoints go to ``DATA/{main,draft}``.
"""

import copy
import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from batches import Batches
from checkpoint import load_state, save_model, save_state
from config import CONTEXT, SHAPES, arguments, device
from head import head_loss
from log import Log
from masks import Layout
from muon import Muon
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

# (share of the budget from which on, value)
Stages = tuple[tuple[float, int], ...]
ROW_LENGTHS: Stages = ((0.0, 256), (0.6, 512), (0.85, 1024), (0.95, CONTEXT))
DEPTHS: dict[str, Stages] = {
    "main": ((0.0, 2), (0.2, 4), (0.55, 8), (0.78, 16)),
    "draft": ((0.0, SHAPES["draft"].num_hidden_layers),),
}

WARMUP_STEPS = 30
DECAY_FROM = 0.5
LAST_RATE = 0.03


def at(stages: Stages, share: float) -> int:
    """The value in force at a share of the budget."""
    return [value for start, value in stages if start <= share][-1]


def rate(step: int, share: float) -> float:
    """Factor on the learning rates: warm-up by steps, constant, then linear to LAST_RATE."""
    decay = min(1.0, (1.0 - share) / (1.0 - DECAY_FROM))
    return min(1.0, (step + 1) / WARMUP_STEPS) * max(LAST_RATE, decay)


def build(shape: LlamaConfig, layers: int, seed: int = 0) -> LlamaForCausalLM:
    """A fresh model of a shape, with ``layers`` of its layers so far."""
    torch.manual_seed(seed)
    config = copy.deepcopy(shape)
    config.num_hidden_layers = layers
    return LlamaForCausalLM(config).float()


def grow(model: LlamaForCausalLM, layers: int) -> None:
    """Double the depth (as often as it takes): after each layer a copy of it that adds nothing yet.

    The copy's two output projections are zero, so the function is unchanged at first.
    """
    while len(model.model.layers) < layers:
        doubled = []
        for layer in model.model.layers:
            duplicate = copy.deepcopy(layer)
            nn.init.zeros_(duplicate.self_attn.o_proj.weight)
            nn.init.zeros_(duplicate.mlp.down_proj.weight)
            doubled += [layer, duplicate]
        model.model.layers = nn.ModuleList(doubled[:layers])
    for index, layer in enumerate(model.model.layers):
        layer.self_attn.layer_idx = index
    model.config.num_hidden_layers = layers


def optimizers(model: LlamaForCausalLM, muon_rate: float, adam_rate: float) -> list:
    """Muon for the layers' matrices, AdamW for the rest."""
    inner = {id(p): p for p in model.model.layers.parameters() if p.ndim == 2}
    rest = [p for p in model.parameters() if id(p) not in inner]
    made = [
        Muon(inner.values(), lr=muon_rate),
        torch.optim.AdamW(rest, lr=adam_rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    return with_full_rates(made)


def with_full_rates(made: list) -> list:
    """The optimizers, each group remembering its full rate, which ``update`` takes a part of."""
    for group in itertools.chain.from_iterable(o.param_groups for o in made):
        group["full"] = group["lr"]
    return made


def regrown(model: LlamaForCausalLM, old: list) -> list:
    """Optimizers of a model that has grown, keeping the state of the parameters it had."""
    made = optimizers(model, *(o.param_groups[0]["full"] for o in old))
    for new, before in zip(made, old, strict=True):
        for parameter in new.param_groups[0]["params"]:
            if parameter in before.state:
                new.state[parameter] = before.state[parameter]
    return made


def hidden_states(
    model: LlamaForCausalLM,
    inputs: Tensor,
    layout: Layout | None = None,
    layers: Sequence[int] = (-1,),
    features: Tensor | None = None,
) -> Tensor:
    """Hidden states [rows, length, d] of token ids [rows, length]; of several layers one by one.

    layers: by transformers' index, -1 is the last. features [rows, length, D]: of another model,
    which PARD-2 adds to its embeddings. In bf16 on CUDA, and on a CPU that has instructions for it.
    """
    laid = {}
    if layout is not None:
        laid["position_ids"] = layout.positions.to(inputs.device)[None]
        laid["attention_mask"] = layout.attention().to(inputs.device)
    has_bf16 = inputs.is_cuda or torch.cpu.get_capabilities().get("avx512_bf16", False)
    with torch.autocast(inputs.device.type, torch.bfloat16, enabled=has_bf16):
        embeds = model.model.embed_tokens(inputs)
        if features is not None:
            embeds = embeds + model.config.pard2_scale * model.target_proj(features)
        laid |= {"use_cache": False, "output_hidden_states": True}
        found = model.model(inputs_embeds=embeds, **laid).hidden_states
    return torch.cat([found[layer] for layer in layers], -1)


def head(model: LlamaForCausalLM) -> Tensor:
    """The head's weight [V, d], without a mask's, which comes last and is no token to predict."""
    return model.lm_head.weight[: getattr(model.config, "pard_token", None)]


@torch.no_grad()
def heldout_loss(model: LlamaForCausalLM, batches: Batches, tokens: int, length: int) -> float:
    """Mean loss in nats a token over ``tokens`` held-out tokens in rows of ``length``."""
    model.eval()
    losses = []
    size = max(length, tokens // 16)
    for first in range(0, tokens, size):
        inputs, targets = batches.take(first, size, length)
        inputs, targets = inputs.to(model.device), targets.to(model.device)
        loss = head_loss(hidden_states(model, inputs), head(model), targets)
        losses.append(loss.item())
    model.train()
    return sum(losses) / len(losses)


def steps(clock: dict, minutes: float) -> Iterator[float]:
    """Yield the share of the budget spent, counting the time each pass of the loop took."""
    while clock["seconds"] < minutes * 60:
        start = time.monotonic()
        yield clock["seconds"] / (minutes * 60)
        clock["seconds"] += time.monotonic() - start
        clock["step"] += 1


def update(model: LlamaForCausalLM, made: list, loss: Tensor, factor: float) -> None:
    """One step of every optimizer, its rates multiplied by ``factor``."""
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in made:
        for group in optimizer.param_groups:
            group["lr"] = group["full"] * factor
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def begin(
    out: Path, model: LlamaForCausalLM, rates: tuple[float, float]
) -> tuple[list, dict[str, float]]:
    """Optimizers and clock: those of the last state in ``out``, whose weights the model gets."""
    clock = {"step": 0, "seconds": 0.0, "tokens": 0, "taught": 0, "saved": 0.0}
    state = load_state(out)
    if state is None:
        return optimizers(model, *rates), clock
    grow(model, state["layers"])
    model.load_state_dict(state["model"])
    made = optimizers(model, *rates)
    for optimizer, saved in zip(made, state["optimizers"], strict=True):
        optimizer.load_state_dict(saved)
    return made, state["clock"]


def train(
    data: Path,
    name: str,
    minutes: float,
    shape: LlamaConfig | None = None,
    depths: Stages | None = None,
    tokens_per_step: int = 4096,
    rates: tuple[float, float] = (0.005, 0.003),
    save_minutes: float = 10.0,
    heldout_tokens: int = 32768,
) -> float:
    """Train model ``name`` for ``minutes`` (going on from its last state) to its held-out loss.

    ``rates`` are the full learning rates of Muon and of AdamW.
    """
    out, depths = data / name, depths or DEPTHS[name]
    batches, heldout = Batches(data), Batches(data, "heldout")
    model = build(shape or SHAPES[name], at(depths, 0.0)).to(device())
    made, clock = begin(out, model, rates)
    log = Log(data, name, clock)

    def keep() -> float:
        loss = heldout_loss(model, heldout, heldout_tokens, 256)
        log.write(len(model.model.layers), heldout=loss)
        save_state(out, model, made, clock)
        save_model(out, model, data)
        return loss

    for share in steps(clock, minutes):
        if at(depths, share) > len(model.model.layers):
            grow(model, at(depths, share))
            made = regrown(model, made)
        row = min(at(ROW_LENGTHS, share), tokens_per_step)
        inputs, targets = batches.take(clock["tokens"], tokens_per_step, row)
        inputs, targets = inputs.to(model.device), targets.to(model.device)
        clock["tokens"] += tokens_per_step
        loss = head_loss(hidden_states(model, inputs), head(model), targets)
        update(model, made, loss, rate(clock["step"], share))
        if clock["step"] % 20 == 0:
            log.write(len(model.model.layers), train=loss.item())
        if clock["seconds"] - clock["saved"] >= save_minutes * 60:
            clock["saved"] = clock["seconds"]
            keep()
    return keep()


def main() -> None:
    """Train one model of the pair."""
    parser = arguments(__doc__.split("\n")[0], minutes=80.0)
    parser.add_argument("--model", choices=sorted(SHAPES), default="main")
    parser.add_argument("--muon-rate", type=float, default=0.005)
    parser.add_argument("--adam-rate", type=float, default=0.003)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    train(args.data, args.model, args.minutes, rates=(args.muon_rate, args.adam_rate))


if __name__ == "__main__":
    main()
