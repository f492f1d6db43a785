"""Acceptance of an exported draft by depth, as the toolkit runs it and as torch does.

The text is the main's own, greedy, after held-out prompts; accepted is a draft token that is the
text's. Both compute in f32, so that they should agree. Further lines have masks that stand one
position too far, or hidden states of the main that are of later layers or of the token before.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from checkpoint import load_state
from config import MASK, READ, SHAPES, arguments, say
from continuations import load
from distil import add_projection, before
from eagle3 import Eagle3
from evaluate import MODELS, heldout_prompts, heldout_texts
from masks import MASKS, Layout
from shipped import dequantized
from torch import Tensor
from train import build, head, hidden_states
from transformers import LlamaForCausalLM

from ov_specdec import SpeculativePipeline
from ov_specdec.drafters.hidden_states import HeadCache, HeadDrafter
from ov_specdec.drafters.model import DraftCache, ModelDrafter
from ov_specdec.models.compile import load_model
from ov_specdec.models.devices import RuntimeConfig
from ov_specdec.models.exported import open_exported
from ov_specdec.models.locate import PROJECTION_FILE
from ov_specdec.planning.plan import Plan
from ov_specdec.runner.cached_sequence import CachedSequence, alone
from ov_specdec.sampling.samplers import Sampler

LENGTH = 240  # tokens of a text: with its masks within the draft's context
FIRST = 32  # tokens of the prompt, of which nothing is proposed


def own_texts(data: Path, main: Path, count: int) -> Tensor:
    """Held-out prompts and the main's greedy text after them, [count, LENGTH]."""
    with SpeculativePipeline(main, drafter="none", precision="exact") as pipeline:
        prompts = heldout_prompts(heldout_texts(data), pipeline, count)
        ids = [pipeline.tokenizer.encode(prompt)[:FIRST] for prompt in prompts]
        options = {"max_new_tokens": LENGTH - FIRST, "ignore_eos": True}
        done = pipeline.generate_batch(ids, **options)
    texts = [[*prompt, *result.token_ids] for prompt, result in zip(ids, done, strict=True)]
    return torch.tensor(texts)


@torch.no_grad()
def by_masks(
    model: LlamaForCausalLM, texts: Tensor, states: Tensor | None = None, off: int = 0
) -> Tensor:
    """What a parallel draft proposes, [texts, positions, depths]. states: those for PARD-2."""
    anchors = torch.arange(FIRST - 1, LENGTH - MASKS - 1)
    layout = Layout.chained(LENGTH, [anchors] * MASKS)
    inputs, allowed = layout.fill(texts, MASK), layout.attention()
    shifted = replace(layout, positions=layout.positions + off * (layout.depths > 0))
    found = []
    for index in range(len(texts)):
        embeds = model.model.embed_tokens(inputs[index])[None]
        if states is not None:
            added = model.target_proj(before(states[index][None], layout))
            embeds = embeds + model.config.pard2_scale * added
        hidden = model.model(
            inputs_embeds=embeds, position_ids=shifted.positions[None], attention_mask=allowed
        ).last_hidden_state
        found.append((hidden[0] @ head(model).T).argmax(-1))
    given = torch.stack(found)
    text, masks = given[:, anchors], given[:, LENGTH:].view(len(texts), MASKS, -1).mT
    return torch.cat([text[..., None], masks], -1)


@torch.no_grad()
def by_chain(model: Eagle3, texts: Tensor, states: Tensor) -> Tensor:
    """What a head proposes, [texts, positions, depths]."""
    size, found = LENGTH - MASKS - 2, []
    for text, read in zip(texts.split(1), states.split(1), strict=True):
        chain: list[Tensor] = [text[:, 1 : 1 + size]]

        def ids(given: list[Tensor], chain: list[Tensor] = chain) -> Tensor:
            chain.extend(model.likeliest(each) for each in given[-1:])
            return chain[-1]

        last = model.unrolled(read[:, :size], ids, MASKS + 1)[-1]
        found.append(torch.stack([*chain[1:], model.likeliest(last)], -1))
    return torch.cat(found)[:, FIRST - 2 :]


def by_toolkit(main: Path, draft: Path, texts: Tensor) -> Tensor:
    """What the exported draft proposes, [texts, positions, depths]."""
    own = load_model(open_exported(draft), RuntimeConfig(precision="exact")).runner
    reads = own.feature_size is not None
    config = RuntimeConfig(precision="exact", projection=draft / PROJECTION_FILE if reads else None)
    runner = load_model(open_exported(main), config).runner
    found = []
    for text in texts.tolist():
        cache = HeadCache(own, object()) if reads else DraftCache(own, object())
        drafter = HeadDrafter(cache, Sampler()) if reads else ModelDrafter(cache, Sampler())
        read = CachedSequence(runner, object(), readers=[drafter] if reads else [])
        for end in range(FIRST, LENGTH - MASKS):
            if reads:
                alone(read.advance(text[: end - 1]))
            proposal = alone(drafter.propose(text[:end], Plan(MASKS + 1, "constant")))
            found.append(proposal.draft.tokens)
        cache.discard()
        read.discard()
    return torch.tensor(found).view(len(texts), -1, MASKS + 1)


def variants(data: Path, name: str, draft: Path, texts: Tensor) -> dict[str, Tensor]:
    """What is proposed in torch, and with faults."""
    if name == "parallel":
        model = dequantized(draft).eval()
        return {"torch": by_masks(model, texts), "masks one on": by_masks(model, texts, off=1)}
    main, trained = load(data / "main"), load_state(data / name)["model"]
    propose: Callable[..., Tensor] = by_chain if name == "eagle3" else by_masks
    model = (
        Eagle3(main) if name == "eagle3" else build(SHAPES[name], SHAPES[name].num_hidden_layers)
    )
    if name == "pard2":
        add_projection(model, len(READ) * main.config.hidden_size)
    model.load_state_dict(trained)
    with torch.no_grad():
        states = hidden_states(main, texts, layers=READ)
        later = hidden_states(main, texts, layers=[layer + 1 for layer in READ])
    return {
        "torch": propose(model.eval(), texts, states),
        "layers one later": propose(model, texts, later),
        "states of the token before": propose(model, texts, states.roll(1, 1)),
    }


def main() -> None:
    """Print the acceptance of each depth as a table."""
    parser = arguments(__doc__.split("\n")[0], minutes=0.0)
    parser.add_argument("--main", type=Path, default=MODELS / "main", help="exported main")
    parser.add_argument("--draft", type=Path, required=True, help="exported draft")
    parser.add_argument("--model", choices=("parallel", "pard2", "eagle3"), default="parallel")
    parser.add_argument("--count", type=int, default=25, help="held-out prompts")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    texts = own_texts(args.data, args.main, args.count)
    found = {"toolkit": by_toolkit(args.main, args.draft, texts)}
    found |= variants(args.data, args.model, args.draft, texts)
    same = (found["toolkit"] == found["torch"]).float().mean().item()
    say(f"{found['torch'][..., 0].numel()} positions, {same:.4f} of all draft tokens the same\n")
    say("| accepted | " + " | ".join(f"token {n}" for n in range(1, MASKS + 2)) + " |")
    say("|---|" + "---|" * (MASKS + 1))
    for name, proposed in found.items():
        accepted = proposed == texts.unfold(1, MASKS + 1, 1)[:, FIRST:]
        whole = accepted.float().mean((0, 1))
        say(f"| {name} | " + " | ".join(f"{share:.3f}" for share in whole.tolist()) + " |")


if __name__ == "__main__":
    main()
