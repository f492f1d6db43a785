"""Measure an exported pair as it ships: what the model card and its tables state.

Held-out loss, acceptance by draft length and temperature, loops and syntax of greedy text, and the
ratio that ``ov-specdec compare`` prints, all over packages never trained on, with the toolkit's
own pipeline at its defaults.
"""

import argparse
import codeop
import itertools
import json
import re
import subprocess
import sys
import warnings
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
from config import PROMPTS, say, tokens_file
from rich.console import Console
from rich.progress import track

from ov_specdec import SpeculativePipeline
from ov_specdec.models.compile import load_model
from ov_specdec.models.devices import RuntimeConfig
from ov_specdec.models.exported import open_exported
from ov_specdec.runner.cached_sequence import PREFILL_CHUNK, CachedSequence, alone

MODELS = Path(__file__).resolve().parent.parent
LENGTHS = (1, 2, 4, 8)
TEMPERATURES = (0.0, 0.5, 1.0)
PROMPT, LONG_PROMPT = 64, 896  # tokens of a held-out prompt
NEW = 128  # tokens continued
STATEMENT = re.compile(r"^(?:def|class|import|from|@)\b", re.MULTILINE)
TIMES = 4  # that a line may come in a continuation that counts as no loop


@dataclass
class Report:
    """What one evaluation found. Losses in nats a token.

    acceptance: accepted draft tokens over proposed ones, by temperature and draft length;
    per_token: over those that were verified, up to the first rejected one; long_prompts: both, by
    temperature, at length 4 after LONG_PROMPT tokens.
    """

    main: str
    draft: str
    prompts: int
    characters_per_token: float
    loss: dict[str, float] = field(default_factory=dict)
    acceptance: dict[str, dict[str, float]] = field(default_factory=dict)
    per_token: dict[str, dict[str, float]] = field(default_factory=dict)
    long_prompts: dict[str, tuple[float, float]] = field(default_factory=dict)
    loops: float = 0.0
    syntax: float = 0.0
    samples: dict[str, str] = field(default_factory=dict)
    sample_acceptance: dict[str, float] = field(default_factory=dict)
    ratios: list[float] = field(default_factory=list)


def heldout_texts(data: Path) -> list[str]:
    """The held-out files."""
    with (data / "corpus" / "heldout.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in lines]


def heldout_prompts(
    texts: list[str], pipeline: SpeculativePipeline, count: int, length: int = PROMPT
) -> list[str]:
    """``count`` texts of about ``length`` tokens, each beginning with a statement of a module."""
    starts = [text[m.start() :] for text in texts for m in STATEMENT.finditer(text)]
    order = np.random.default_rng(0).permutation(len(starts))
    prompts = []
    for index in order:
        ids = pipeline.tokenizer.encode(starts[index][: length * 20])
        if len(ids) > length + NEW:
            prompts.append(pipeline.tokenizer.decode(ids[:length]))
        if len(prompts) == count:
            return prompts
    raise SystemExit(f"the held-out side has {len(prompts)} prompts, not {count}")


def heldout_loss(folder: Path, ids: np.ndarray, row: int, rows: int) -> float:
    """Mean loss (nats a token) of an exported model over ``rows`` rows of ``row`` + 1 tokens."""
    source = open_exported(folder)
    model = load_model(source, RuntimeConfig()).runner
    losses = []
    for start in np.linspace(0, len(ids) - row - 1, rows, dtype=int):
        tokens = ids[start : start + row + 1].tolist()
        cache = CachedSequence(model, namespace=object())
        for first in range(0, row, PREFILL_CHUNK):
            targets = tokens[first + 1 : first + PREFILL_CHUNK + 1]
            read = tokens[: first + len(targets)]
            logits = alone(cache.advance(read, num_rows=len(targets))).logits
            losses.append(cross_entropy(logits, targets))
        cache.discard()
    return float(np.concatenate(losses).mean())


def cross_entropy(logits: np.ndarray, targets: list[int]) -> np.ndarray:
    """-log p of each target, [rows], under logits [rows, vocab]."""
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(targets)), targets]


def acceptance(
    pipeline: SpeculativePipeline, prompts: list[str], length: int, temperature: float
) -> tuple[float, float]:
    """Accepted draft tokens over proposed ones and over verified ones; temperature 0 is greedy.

    Drafts of ``length``. What comes after the first mismatch was proposed, but is not verified.
    """
    options = {"do_sample": True, "temperature": temperature} if temperature else {}
    drafted = accepted = fallen = 0
    for seed, prompt in enumerate(prompts):
        stats = pipeline.generate(
            prompt,
            max_new_tokens=NEW,
            num_assistant_tokens=length,
            num_assistant_tokens_schedule="constant",
            **({"seed": seed, **options} if options else {}),
        ).stats
        drafted += stats.drafted
        accepted += stats.accepted
        fallen += sum(r.num_accepted < r.num_drafted for r in stats.rounds)
    return round(accepted / drafted, 4), round(accepted / (accepted + fallen), 4)


def is_loop(text: str) -> bool:
    """Whether a line that is not blank comes more than TIMES times."""
    lines = Counter(line.strip() for line in text.split("\n") if line.strip())
    return max(lines.values(), default=0) > TIMES


def is_python(text: str) -> bool:
    """Whether the whole lines of a text can begin a Python module."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        try:
            codeop.compile_command(text[: text.rfind("\n") + 1], symbol="exec")
        except (SyntaxError, ValueError, OverflowError):
            return False
    return True


def compare(main: Path, draft: Path, prompt: str) -> float:
    """The ratio that ``ov-specdec compare`` gives at its defaults; 1 where nothing was drafted."""
    command = [str(Path(sys.executable).with_name("ov-specdec")), "compare", prompt, "--json"]
    command += ["--main", str(main), "--draft", str(draft)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - our own words, two paths and a prompt
    return float(json.loads(done.stdout)["ratio"] or 1.0)


def evaluate(
    data: Path, main: Path, draft: Path, count: int = 50, compared: int = 20, rows: int = 64
) -> Report:
    """Everything the report holds; progress on the standard error."""
    console = Console(stderr=True)
    pipeline = SpeculativePipeline(main, draft)
    texts = heldout_texts(data)
    prompts = heldout_prompts(texts, pipeline, count)
    ids = np.fromfile(tokens_file(data, "heldout"), dtype=np.uint16)
    report = Report(main.name, draft.name, count, sum(map(len, texts)) / len(ids))
    row = min(1024, (len(ids) - 1) // 2)
    for name, folder in (("main", main), ("draft", draft)):
        report.loss[name] = round(heldout_loss(folder, ids, row, rows), 4)
    cells = list(itertools.product(TEMPERATURES, LENGTHS))
    for temperature, length in track(cells, "Acceptance", console=console):
        found = acceptance(pipeline, prompts, length, temperature)
        for table, rate in zip((report.acceptance, report.per_token), found, strict=True):
            table.setdefault(str(temperature), {})[str(length)] = rate
    long = heldout_prompts(texts, pipeline, count, LONG_PROMPT)
    for temperature in track(TEMPERATURES, "Long prompts", console=console):
        report.long_prompts[str(temperature)] = acceptance(pipeline, long, 4, temperature)
    made = [
        pipeline.generate(prompt, max_new_tokens=NEW).text
        for prompt in track(prompts, "Greedy text", console=console)
    ]
    report.loops = sum(map(is_loop, made)) / count
    report.syntax = sum(is_python(p + t) for p, t in zip(prompts, made, strict=True)) / count
    for prompt in PROMPTS:
        report.samples[prompt] = prompt + pipeline.generate(prompt, max_new_tokens=NEW).text
        report.sample_acceptance[prompt] = acceptance(pipeline, [prompt], 4, 0.0)[0]
    report.ratios = [
        round(compare(main, draft, prompt), 3)
        for prompt in track(prompts[:compared], "Comparing", console=console)
    ]
    return report


def kind(temperature: str) -> str:
    """How a table names a temperature."""
    return f"temperature {temperature}" if float(temperature) else "greedy"


def markdown(report: Report) -> str:
    """The report as tables, and the samples as code."""
    per_bit = 1 / (report.characters_per_token * np.log(2))
    lines = ["| model | held-out loss (nats a token) | bits a character |", "|---|---|---|"]
    for name, loss in report.loss.items():
        lines.append(f"| {name} | {loss:.3f} | {loss * per_bit:.3f} |")
    tables = {"of those proposed": report.acceptance, "of those verified": report.per_token}
    for title, table in tables.items():
        lines += ["", f"| accepted {title} | " + " | ".join(f"length {n}" for n in LENGTHS) + " |"]
        lines.append("|---|" + "---|" * len(LENGTHS))
        for temperature, row in table.items():
            rates = " | ".join(f"{x:.2f}" for x in row.values())
            lines.append(f"| {kind(temperature)} | {rates} |")
    lines += [
        "",
        f"| accepted after {LONG_PROMPT} tokens, length 4 | of those proposed | verified |",
    ]
    lines.append("|---|---|---|")
    for temperature, (proposed, verified) in report.long_prompts.items():
        lines.append(f"| {kind(temperature)} | {proposed:.2f} | {verified:.2f} |")
    lines += ["", "| greedy continuations | |", "|---|---|"]
    lines.append(f"| with a line that comes more than {TIMES} times | {report.loops:.0%} |")
    lines.append(f"| that can begin a Python module | {report.syntax:.0%} |")
    if report.ratios:
        low, high = np.quantile(report.ratios, (0.25, 0.75))
        lines.append(
            f"| `ov-specdec compare`: ratio to plain decoding, median of {len(report.ratios)} "
            f"prompts (quartiles) | {median(report.ratios):.2f} ({low:.2f} to {high:.2f}) |"
        )
    for prompt, text in report.samples.items():
        rate = report.sample_acceptance[prompt]
        lines += ["", f"`{prompt}` (acceptance {rate:.2f} at length 4):"]
        lines += ["", "```python", text, "```"]
    return "\n".join(lines)


def main() -> None:
    """Print the measurements of a pair."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the held-out corpus")
    parser.add_argument("--main", type=Path, default=MODELS / "main", help="exported main")
    parser.add_argument("--draft", type=Path, default=MODELS / "draft", help="exported draft")
    parser.add_argument("--count", type=int, default=50, help="held-out prompts")
    parser.add_argument("--compared", type=int, default=20, help="of them through compare")
    parser.add_argument("--json", action="store_true", help="JSON rather than Markdown")
    args = parser.parse_args()
    report = evaluate(args.data, args.main, args.draft, args.count, args.compared)
    say(json.dumps(asdict(report), indent=1) if args.json else markdown(report))


if __name__ == "__main__":
    main()
