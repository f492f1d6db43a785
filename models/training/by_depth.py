"""Acceptance of an exported parallel draft by depth, as the toolkit runs it and as torch does.

The text is the main's own, greedy, after held-out prompts; accepted is a mask's likeliest token
where it is the text's. Both compute in f32 on the same int8 weights, so that they should agree. A
third line has masks that stand one position too far.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from config import MASK, arguments, say
from evaluate import MODELS, heldout_prompts, heldout_texts
from masks import MASKS, Layout
from shipped import dequantized
from torch import Tensor
from train import head
from transformers import LlamaForCausalLM

from ov_specdec import SpeculativePipeline
from ov_specdec.models.compile import load_model
from ov_specdec.models.devices import RuntimeConfig
from ov_specdec.models.exported import open_exported
from ov_specdec.runner.cached_sequence import CachedSequence, alone

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
def by_torch(model: LlamaForCausalLM, texts: Tensor, off: int = 0) -> Tensor:
    """Whether each proposal is the text's token, [texts, positions, depths]."""
    anchors = torch.arange(FIRST - 1, LENGTH - MASKS - 1)
    layout = Layout.chained(LENGTH, [anchors] * MASKS)
    inputs, allowed = layout.fill(texts, MASK), layout.attention()
    shifted = replace(layout, positions=layout.positions + off * (layout.depths > 0))
    found = []
    for row in inputs:
        hidden = model.model(
            input_ids=row[None], position_ids=shifted.positions[None], attention_mask=allowed
        ).last_hidden_state
        found.append((hidden[0] @ head(model).T).argmax(-1))
    given = torch.stack(found)
    text, masks = given[:, anchors], given[:, LENGTH:].view(len(texts), MASKS, -1).mT
    proposed = torch.cat([text[..., None], masks], -1)
    return proposed == texts.unfold(1, MASKS + 1, 1)[:, FIRST:]


def by_toolkit(draft: Path, texts: Tensor) -> Tensor:
    """The same from passes of the exported model, each after a text that is one token longer."""
    source = open_exported(draft)
    config = RuntimeConfig(precision="exact")
    runner = load_model(source, config).runner
    accepted = []
    for text in texts.tolist():
        cache = CachedSequence(runner, namespace=object())
        for end in range(FIRST, LENGTH - MASKS):
            done = alone(cache.advance(text[:end], [MASK] * MASKS, num_rows=MASKS + 1))
            proposed = done.logits.argmax(axis=1)
            accepted.append(proposed == np.array(text[end : end + MASKS + 1]))
        cache.discard()
    return torch.from_numpy(np.stack(accepted)).view(len(texts), -1, MASKS + 1)


def main() -> None:
    """Print the acceptance of each depth as a table."""
    parser = arguments(__doc__.split("\n")[0], minutes=0.0)
    parser.add_argument("--main", type=Path, default=MODELS / "main", help="exported main")
    parser.add_argument("--draft", type=Path, required=True, help="exported parallel draft")
    parser.add_argument("--count", type=int, default=25, help="held-out prompts")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    texts, model = own_texts(args.data, args.main, args.count), dequantized(args.draft).eval()
    found = {"toolkit": by_toolkit(args.draft, texts), "torch": by_torch(model, texts)}
    found["masks one position off"] = by_torch(model, texts, off=1)
    same = (found["toolkit"] == found["torch"]).float().mean().item()
    say(f"{found['torch'][..., 0].numel()} positions, {same:.4f} of all proposals judged alike\n")
    say("| accepted | " + " | ".join(f"token {n}" for n in range(1, MASKS + 2)) + " |")
    say("|---|" + "---|" * (MASKS + 1))
    for name, accepted in found.items():
        whole = accepted.float().mean((0, 1))
        say(f"| {name} | " + " | ".join(f"{share:.3f}" for share in whole.tolist()) + " |")


if __name__ == "__main__":
    main()
