"""`ov-specdec tune`: the settings that suit a pair of models on this machine, and what pays."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from ov_specdec.arguments import find_pairing
from ov_specdec.bench.prompts import read_prompts
from ov_specdec.checks import require_number
from ov_specdec.cli.options import PAIRING_OPTION, fixed_sizes_option, parse_sizes
from ov_specdec.cli.terminal import console, print_json, with_errors
from ov_specdec.costs import SIZES as COST_SIZES
from ov_specdec.costs import CostCurve
from ov_specdec.errors import OptionError
from ov_specdec.loading.fixed_sizes import FixedSizes
from ov_specdec.loading.locate import embedded_folder, locate
from ov_specdec.loading.profile import default_path
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.text.pairing import PairingName
from ov_specdec.tuning import Candidate, Gain, Refused, Trial, Tuner, Tuning, break_even
from ov_specdec.tuning.candidates import PROMPTS, measure_gain
from ov_specdec.tuning.passes import SIZES

CURVE_SECONDS = 10.0
"""For the cost curve, five times as long as a run takes for it: it is the least of more sweeps."""

HEADER = ("model", "settings", *(f"{size}" for size in SIZES), "prefill")


@click.command()
@with_errors
@click.argument("main", required=False)
@click.argument("draft", required=False)
@click.option("--device", default="CPU", show_default=True, help="OpenVINO device.")
@click.option(
    "--seconds", type=float, default=100.0, show_default=True, help="Time for the search."
)
@click.option(
    "--other-draft",
    "other_drafts",
    multiple=True,
    metavar="DIR",
    help="Another draft model for the last table, such as the main's own weights as int4; may be "
    "given several times.",
)
@PAIRING_OPTION
@fixed_sizes_option("auto")
@click.option(
    "--prompt-file",
    type=click.Path(path_type=Path),
    metavar="F",
    help="Prompts for the last table, one per line. [code, a question, a function to rewrite]",
)
@click.option("--output", metavar="FILE", help="Where the profile goes. [the user's cache]")
@click.option("--json", "as_json", is_flag=True, help="Print the profile instead of the tables.")
def tune(
    main: str | None,
    draft: str | None,
    device: str,
    seconds: float,
    other_drafts: Sequence[str],
    pairing: PairingName | None,
    fixed_sizes: str,
    prompt_file: Path | None,
    output: str | None,
    as_json: bool,
) -> None:
    """Measure MAIN and DRAFT, or the embedded pair; say what pays, and write a profile.

    Later runs with the same models on this machine take the profile up by themselves. The last
    table compares drafters with plain decoding: the draft model, suffix matches, both, and other
    drafts. With MAIN alone there is no pair to write a profile for, and only that table. Settings
    are searched without copies of fixed sizes; what the chosen ones cost and bring is measured with
    them.
    """
    require_number("seconds", seconds, above=0.0)
    sizes = parse_sizes(fixed_sizes)
    prompts = PROMPTS if prompt_file is None else read_prompts(prompt_file)
    main_folder = embedded_folder("main") if main is None else locate(main)
    drafts = [locate(name) for name in other_drafts]
    for other in drafts:  # before a search that takes minutes
        find_pairing(main_folder, other, pairing)
    conditions = Conditions(main_folder, device, seconds, pairing, sizes)
    report: dict[str, Any] = {}
    if main is None or draft is not None:
        draft_folder = embedded_folder("draft") if draft is None else locate(draft)
        drafts.insert(0, draft_folder)
        report = _tune_pair(conditions, draft_folder, output, as_json)
    elif output is not None:
        raise OptionError(f"--output '{output}' has no use without DRAFT: a profile is for a pair")
    gains = _measure_candidates(conditions, drafts, prompts)
    if as_json:
        print_json({**report, "candidates": [_gain_as_dict(gain) for gain in gains]})
        return
    for row in gain_table(gains):
        click.echo(f"| {' | '.join(row)} |")
    click.echo("(greedy, with the default draft length, against plain decoding in turns)\n")
    click.echo(recommend(gains))


@dataclass(frozen=True)
class Conditions:
    """The main model, and how its drafters are measured. seconds: for the search, and for these."""

    main: Path
    device: str
    seconds: float
    pairing: PairingName | None
    fixed_sizes: FixedSizes


def _tune_pair(given: Conditions, draft: Path, output: str | None, as_json: bool) -> dict[str, Any]:
    """Search, write the profile and print what was found; returns it for JSON."""
    rows: list[tuple[str, ...]] = []
    with console.status("Measuring") as status:

        def note(role: str, trial: Trial | Refused) -> None:
            rows.append(describe_trial(role, trial))
            status.update(f"Measuring the {role} model: {rows[-1][1]}")

        tuning = Tuner(
            *(given.main, draft, given.device),
            seconds=given.seconds,
            note=note,
            pairing=given.pairing,
        ).run()
    path = default_path(tuning.profile.pair) if output is None else Path(output)
    if path is None:
        raise OptionError("there is no home folder for the profile: give --output FILE")
    tuning.profile.write(path)
    with (
        console.status("Measuring what passes cost with the chosen settings"),
        SpeculativePipeline(
            *(given.main, draft),
            pairing=given.pairing,
            device=given.device,
            profile=path,
            fixed_sizes=given.fixed_sizes,
        ) as pipeline,
    ):
        curve = pipeline.prepare(seconds=CURVE_SECONDS)
    if not as_json:
        for row in (HEADER, ("---",) * len(HEADER), *rows):
            click.echo(f"| {' | '.join(row)} |")
        click.echo("(milliseconds of a pass over so many tokens)\n")
        for row in curve_table(curve):
            click.echo(f"| {' | '.join(row)} |")
        click.echo("(the same with the chosen settings, in turns; kept for later runs)\n")
        for line in [*conclude(tuning), explain(curve)]:
            click.echo(line)
        click.echo(f"profile       {path}\n")
    return {**tuning.profile.as_dict(), "costs": asdict(curve)}


def _measure_candidates(
    given: Conditions, drafts: Sequence[Path], prompts: Sequence[str]
) -> list[Gain]:
    """Suffix matches, each draft model, and the first of them together with suffix matches."""
    paired = [(draft, find_pairing(given.main, draft, given.pairing)) for draft in drafts]
    candidates = [Candidate("suffix")]
    candidates += [Candidate("model", *draft) for draft in paired]
    candidates += [Candidate("both", *draft) for draft in paired[:1]]
    with console.status("Measuring drafters") as status:
        gains = []
        for candidate in candidates:
            status.update(f"Measuring {describe_candidate(candidate)}")
            gains.append(
                measure_gain(
                    *(given.main, candidate, given.device, prompts),
                    seconds=given.seconds / len(candidates),
                    fixed_sizes=given.fixed_sizes,
                )
            )
    return gains


def gain_table(gains: Sequence[Gain]) -> list[tuple[str, ...]]:
    """A row for each candidate."""
    header = ("drafter", "tokens/s", "plain", "ratio", "quartiles", "tokens per pass", "pays")
    rows = [header, ("---",) * len(header)]
    rows += [
        (
            describe_candidate(gain.candidate),
            f"{gain.speed:.1f}",
            f"{gain.plain_speed:.1f}",
            f"{gain.ratio:.2f}",
            "{:.2f} to {:.2f}".format(*gain.quartiles),
            f"{gain.tokens_per_pass:.2f}",
            verdict(gain),
        )
        for gain in gains
    ]
    return rows


def verdict(gain: Gain) -> str:
    """Whether a candidate pays, in a word."""
    if not gain.is_clear:
        return "unclear"
    return "yes" if gain.pays else "no"


def recommend(gains: Sequence[Gain]) -> str:
    """The candidate to take, in a line."""
    best = max(gains, key=lambda gain: (gain.pays, gain.ratio))
    if not all(gain.is_clear for gain in gains):
        return "to take       not clear yet: give more --seconds"
    if not best.pays:
        return (
            "to take       --drafter none: nothing is faster than plain decoding on these prompts"
        )
    candidate = best.candidate
    draft = "" if candidate.draft is None else f" --draft {candidate.draft}"
    pairing = "" if candidate.pairing is None else f" --pairing {candidate.pairing}"
    return f"to take       --drafter {candidate.drafter}{draft}{pairing}"


def describe_candidate(candidate: Candidate) -> str:
    """A drafter and the name of its draft model's folder."""
    return " ".join([candidate.drafter, *([candidate.draft.name] if candidate.draft else [])])


def _gain_as_dict(gain: Gain) -> dict[str, Any]:
    draft = gain.candidate.draft
    return {
        "drafter": gain.candidate.drafter,
        "draft": None if draft is None else str(draft),
        "tokens_per_second": gain.speed,
        "plain_tokens_per_second": gain.plain_speed,
        "ratio": gain.ratio,
        "ratios": list(gain.ratios),
        "tokens_per_main_pass": gain.tokens_per_pass,
        "pays": gain.pays,
    }


def curve_table(curve: CostCurve) -> list[tuple[str, ...]]:
    """The cost curve of both models, a row for each number of cached tokens."""
    header = ("model", "cached", *map(str, COST_SIZES), "change of size")
    rows = [header, ("---",) * len(header)]
    for role, passes in (("main", curve.main), ("draft", curve.draft)):
        for cached in sorted(passes.seconds) if passes is not None else ():
            seconds = [passes.at(size, cached) for size in COST_SIZES] if passes else []
            values = [*seconds, passes.change if passes else 0.0]
            rows.append((role, str(cached), *(f"{1000 * value:.2f}" for value in values)))
    return rows


def explain(curve: CostCurve) -> str:
    """What the curve means for speculation."""
    least = break_even(curve, min(curve.main.seconds))
    if least is None:
        return "break-even    none: candidates cost more than they can yield"
    return f"break-even    speculation pays from {least:.0%} accepted candidates on"


def describe_trial(role: str, trial: Trial | Refused) -> tuple[str, ...]:
    """A row of the table."""
    settings = describe_settings(trial.properties)
    if isinstance(trial, Refused):
        return role, settings, *("refused" for _ in SIZES), "refused"
    milliseconds = (*trial.costs.seconds.values(), trial.costs.prefill)
    return role, settings, *(f"{1000 * value:.2f}" for value in milliseconds)


def describe_settings(properties: Mapping[str, str]) -> str:
    """Properties in one line."""
    return " ".join(f"{key}={value}" for key, value in properties.items()) or "defaults"


def conclude(tuning: Tuning) -> list[str]:
    """What was chosen, and what to expect of it."""
    profile, tuned, default = tuning.profile, tuning.tuned, tuning.default
    pays = f"pays: {tuned.ratio:.2f} times plain decoding" if tuned.draft_length else "does not pay"
    return [
        f"main          {describe_settings(profile.main_properties)} ({tuning.reasons['main']})",
        f"draft         {describe_settings(profile.draft_properties)} ({tuning.reasons['draft']})",
        f"speculation   {pays}, with {tuned.draft_length} candidates per round at best",
        f"to expect     {tuned.speed:.1f} tokens/s, {tuned.plain_speed:.1f} in plain decoding "
        f"(OpenVINO's defaults: {default.speed:.1f} and {default.plain_speed:.1f})",
        f"acceptance    {tuning.acceptance:.0%} of candidates, on sample prompts",
        f"other tokens  {tuning.changed['tuned']:.1%} of greedy choices are not those of exact "
        f"precision (defaults: {tuning.changed['default']:.1%})",
    ]
