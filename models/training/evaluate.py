"""Measure the pair: held-out loss, greedy acceptance of the draft, sample continuations.

Acceptance is what greedy speculative decoding (arXiv:2211.17192) sees: along the main's own greedy
continuations the draft proposes LENGTH tokens, those before the first mismatch count as accepted,
the main adds one. Prompts are windows of held-out files that begin at a line, and PROMPTS.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from batches import Batches
from config import PROMPTS, say, tokens_file
from continuations import greedy, line_starts, load
from torch import Tensor
from train import heldout_loss
from transformers import AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerBase

LENGTH = 4


@torch.no_grad()
def matches(draft: LlamaForCausalLM, rows: Tensor, prompt: int) -> Tensor:
    """Whether the draft's greedy choice is the main's, [rows, new] bool.

    ``rows`` [rows, prompt + new] are prompts with the main's greedy continuations.
    """
    choices = draft(input_ids=rows[:, :-1]).logits.argmax(-1)
    return choices[:, prompt - 1 :] == rows[:, prompt:]


def rounds(match: list[bool], length: int) -> tuple[int, int]:
    """Rounds of speculative decoding over one continuation, and the tokens accepted in them.

    Only whole rounds count: one that the end of the continuation cuts short is left out.
    """
    count = accepted = position = 0
    while position + length < len(match):
        run = 0
        while run < length and match[position + run]:
            run += 1
        count, accepted, position = count + 1, accepted + run, position + run + 1
    return count, accepted


def repeated(rows: Tensor, prompt: int, size: int = 16) -> float:
    """Share of continued tokens that end a run of ``size`` tokens seen before in their row."""
    hits = total = 0
    for row in rows.tolist():
        seen: set[tuple[int, ...]] = set()
        for end in range(size, len(row) + 1):
            window = tuple(row[end - size : end])
            if end > prompt:
                total += 1
                hits += window in seen
            seen.add(window)
    return hits / max(total, 1)


def acceptance(
    main: LlamaForCausalLM, draft: LlamaForCausalLM, prompts: Tensor, new: int
) -> dict[str, float]:
    """Figures of the pair on prompts [rows, p], continued by ``new`` tokens each."""
    rows = greedy(main, prompts, prompts.shape[1] + new)
    match = matches(draft, rows, prompts.shape[1])
    counted = [rounds(row, LENGTH) for row in match.tolist()]
    made, accepted = sum(c for c, _ in counted), sum(a for _, a in counted)
    return {
        "continuations": len(rows),
        "agreement": round(match.float().mean().item(), 4),
        "acceptance": round(accepted / (made * LENGTH), 4),
        "tokens_per_main_pass": round(accepted / made + 1, 3),
        "repeated": round(repeated(rows, prompts.shape[1]), 4),
    }


def heldout_prompts(
    data: Path, tokenizer: PreTrainedTokenizerBase, count: int, length: int
) -> Tensor:
    """``count`` windows of ``length`` tokens of held-out files, each beginning at a line."""
    ids = np.fromfile(tokens_file(data, "heldout"), dtype=np.uint16)
    newline = tokenizer.encode("\n", add_special_tokens=False)[0]
    starts = np.random.default_rng(0).choice(line_starts(ids, newline, length), size=count)
    return torch.from_numpy(np.stack([ids[s : s + length] for s in starts]).astype(np.int64))


def evaluate(
    data: Path, count: int = 64, length: int = 64, new: int = 96, chunks: int = 64
) -> dict:
    """Everything the report holds, from the checkpoints in ``DATA/main`` and ``DATA/draft``."""
    tokenizer = AutoTokenizer.from_pretrained(data / "main")
    main, draft = load(data / "main"), load(data / "draft")
    heldout = Batches(data, "heldout")
    chunks = min(chunks, heldout.chunks)
    result: dict = {"heldout_loss": {}, "samples": {}}
    for name, model in (("main", main), ("draft", draft)):
        result["heldout_loss"][name] = {
            str(row): round(heldout_loss(model, heldout, chunks, row), 4) for row in (256, 1024)
        }
    prompts = heldout_prompts(data, tokenizer, count, length).to(main.device)
    result["heldout"] = acceptance(main.eval(), draft.eval(), prompts, new)
    plain = []
    for prompt in PROMPTS:
        ids = tokenizer(prompt, add_special_tokens=False, return_tensors="pt").input_ids
        ids = ids.to(main.device)
        plain.append(acceptance(main, draft, ids, new))
        text = greedy(main, ids, ids.shape[1] + new)[0].tolist()
        end = text.index(0) if 0 in text else len(text)
        result["samples"][prompt] = tokenizer.decode(text[:end])
    result["plain"] = dict(zip(PROMPTS, plain, strict=True))
    return result


def markdown(result: dict) -> str:
    """The result as two tables and the samples as code."""
    lines = ["| model | held-out loss, rows of 256 | rows of 1,024 |", "|---|---|---|"]
    for name, losses in result["heldout_loss"].items():
        lines.append(f"| {name} | {losses['256']:.3f} | {losses['1024']:.3f} |")
    lines += ["", "| prompts | agreement | acceptance | tokens a main pass | repeated |"]
    lines.append("|---|---|---|---|---|")
    for name, row in {"held-out files": result["heldout"], **result["plain"]}.items():
        shown = name if name == "held-out files" else f"`{name}`"
        lines.append(
            f"| {shown} | {row['agreement']:.3f} | {row['acceptance']:.3f} "
            f"| {row['tokens_per_main_pass']:.2f} | {row['repeated']:.2f} |"
        )
    for text in result["samples"].values():
        lines += ["", "```python", text, "```"]
    return "\n".join(lines)


def main() -> None:
    """Print the measurements of a pair."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with both checkpoints")
    parser.add_argument("--count", type=int, default=64, help="held-out prompts")
    parser.add_argument("--new", type=int, default=96, help="tokens continued from each")
    parser.add_argument("--json", action="store_true", help="JSON rather than Markdown")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    result = evaluate(args.data, args.count, new=args.new)
    say(json.dumps(result, indent=1) if args.json else markdown(result))


if __name__ == "__main__":
    main()
