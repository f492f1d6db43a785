"""From single runs to one row per method: medians, spread, ratios, equality."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import md5
from statistics import median
from typing import Any

from ov_specdec.bench.summary import Spread
from tests.benchmarks.peers.measurement import Measurement
from tests.benchmarks.peers.methods import BASELINE
from tests.benchmarks.peers.runner import Outcome, Run

MIB = 2**20

Figure = Callable[[Measurement], float | None]
"""A figure of one measurement; None where the method does not tell."""


def paired_ratios(runs: Iterable[Run], method: str, baseline: str) -> list[float]:
    """Tokens/s of a method relative to the baseline's on the same prompt in the same round."""
    speeds = {(r.method, r.round, r.prompt): r.measurement.tokens_per_second for r in runs}
    return [
        speed / speeds[baseline, round_, prompt]
        for (name, round_, prompt), speed in speeds.items()
        if name == method and (baseline, round_, prompt) in speeds
    ]


def share_equal(runs: Sequence[Run], method: str) -> float | None:
    """The share of prompts on which a method's output is always that of plain decoding."""
    outputs: dict[tuple[str, int], set[tuple[int, ...]]] = {}
    for run in runs:
        key = run.method, run.prompt
        outputs.setdefault(key, set()).add(tuple(run.measurement.token_ids))
    prompts = [prompt for name, prompt in outputs if name == method]
    compared = [prompt for prompt in prompts if (BASELINE, prompt) in outputs]
    if not compared:
        return None
    equal = [outputs[method, prompt] == outputs[BASELINE, prompt] for prompt in compared]
    return sum(equal) / len(equal)


def summarize(outcome: Outcome, baseline: str = BASELINE) -> list[dict[str, Any]]:
    """One row per method that has finished runs: figures by column name.

    Names are those of openvino.genai's llm_bench where it has the figure. Figures are medians over
    all prompts and rounds; None where a method does not tell.
    """
    names = dict.fromkeys(run.method for run in outcome.runs)
    return [_row(outcome, name, baseline) for name in names]


def _row(outcome: Outcome, name: str, baseline: str) -> dict[str, Any]:
    measured = [run.measurement for run in outcome.runs if run.method == name]
    memory = outcome.peak_memory.get(name)
    return {
        "method": name,
        "framework": outcome.frameworks.get(name),
        "iterations": len(measured),
        "pretrain_time(s)": outcome.load_seconds.get(name),
        "input_size": _median(measured, lambda m: m.prompt_tokens),
        "output_size": _median(measured, lambda m: m.generated_tokens),
        "generation_time(s)": _median(measured, lambda m: m.seconds),
        **spread_columns("tokens/s", [m.tokens_per_second for m in measured]),
        **spread_columns(f"ratio to {baseline}", paired_ratios(outcome.runs, name, baseline)),
        **spread_columns("1st_latency(ms)", [1000 * m.first_token_seconds for m in measured]),
        **spread_columns("2nd_avg_latency(ms)", _values(measured, _token_milliseconds)),
        "acceptance": _median(measured, lambda m: m.acceptance_rate),
        "tokens/main pass": _median(measured, lambda m: m.tokens_per_main_pass),
        "main(s)": _median(measured, lambda m: m.main_seconds),
        "draft(s)": _median(measured, lambda m: m.draft_seconds),
        "max_rss_mem(MiB)": None if memory is None else memory / MIB,
        "equal to plain": share_equal(outcome.runs, name),
    }


def spread_of(values: Sequence[float]) -> Spread | None:
    """The spread of some values; None where there are none."""
    return Spread.of(values) if values else None


def spread_columns(column: str, values: Sequence[float]) -> dict[str, float | None]:
    """The median in a column, and the quartiles in two of their own."""
    spread = spread_of(values)
    return {
        column: spread.median if spread else None,
        f"{column} (q1)": spread.low if spread else None,
        f"{column} (q3)": spread.high if spread else None,
    }


def _token_milliseconds(measurement: Measurement) -> float | None:
    seconds = measurement.time_per_output_token
    return None if seconds is None else 1000 * seconds


def _values(measured: Sequence[Measurement], figure: Figure) -> list[float]:
    return [value for m in measured if (value := figure(m)) is not None]


def _median(measured: Sequence[Measurement], figure: Figure) -> float | None:
    values = _values(measured, figure)
    return median(values) if values else None


def run_rows(outcome: Outcome, environment: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row per run, with the columns of an llm_bench report as far as they apply."""
    return [
        {
            "iteration": run.round + 1,
            "model": environment["models"]["main"]["name"],
            "framework": outcome.frameworks.get(run.method),
            "method": run.method,
            "device": environment["options"]["device"],
            "precision": environment["options"]["precision"],
            "pretrain_time(s)": outcome.load_seconds.get(run.method),
            "input_size": run.measurement.prompt_tokens,
            "output_size": run.measurement.generated_tokens,
            "generation_time(s)": run.measurement.seconds,
            "latency(ms)": 1000 / run.measurement.tokens_per_second,
            "1st_latency(ms)": 1000 * run.measurement.first_token_seconds,
            "2nd_avg_latency(ms)": _token_milliseconds(run.measurement),
            "prompt_idx": run.prompt,
            "drafted": run.measurement.drafted,
            "accepted": run.measurement.accepted,
            "main_passes": run.measurement.main_passes,
            "main(s)": run.measurement.main_seconds,
            "draft(s)": run.measurement.draft_seconds,
            "result_md5": _digest(run.measurement.token_ids),
        }
        for run in outcome.runs
    ]


def _digest(token_ids: Sequence[int]) -> str:
    return md5(str(list(token_ids)).encode(), usedforsecurity=False).hexdigest()
