"""`ov-specdec tune`: the settings that suit a pair of models on this machine, and what pays."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from ov_specdec.arguments import find_pairing
from ov_specdec.bench.prompts import read_prompts
from ov_specdec.checks import require_number
from ov_specdec.cli.options import PAIRING_OPTION, STATIC_SHAPES_OPTION, parse_sizes
from ov_specdec.cli.terminal import console, print_json, with_errors
from ov_specdec.errors import OptionError
from ov_specdec.files import as_argument
from ov_specdec.loading.locate import embedded_folder, locate
from ov_specdec.loading.profile import Profile, default_path, require_writable
from ov_specdec.loading.static_shapes import StaticShapes
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.planning.costs import SIZES as COST_SIZES
from ov_specdec.planning.costs import CostCurve, curve_as_dict
from ov_specdec.text.pairing import PairingName, UsedPairing
from ov_specdec.tuning import Candidate, Gain, Refused, Trial, Tuner, Tuning, break_even
from ov_specdec.tuning.candidates import PROMPTS, measure_gain
from ov_specdec.tuning.passes import SIZES
from ov_specdec.tuning.search import describe_settings

CURVE_SECONDS = 10.0
"""For the cost curve, five times as long as a run takes for it: it is the least of more sweeps."""

HEADER = ("model", "settings", *(f"{size}" for size in SIZES), "prefill")
PASSES_NOTE = "milliseconds of a pass over so many tokens"
CURVE_NOTE = "the same with the chosen settings, in turns; kept for runs with these --static-shapes"

GAINS_NOTE = "greedy, with the default draft length, against plain decoding in turns"


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
@STATIC_SHAPES_OPTION
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
    static_shapes: str,
    prompt_file: Path | None,
    output: str | None,
    as_json: bool,
) -> None:
    """Measure MAIN and DRAFT, or the embedded pair; say what pays, and write a profile.

    Later runs with the same models on this machine take the profile up by themselves, unless
    --output has put it elsewhere. The last table compares drafters with plain decoding: the draft
    model, suffix matches, both, and other drafts. With MAIN alone there is no pair to write a
    profile for, and only that table. Settings are searched without static shapes; what the
    chosen ones cost and bring is measured with them.
    """
    require_number("seconds", seconds, above=0.0)
    sizes = parse_sizes(static_shapes)
    prompts = PROMPTS if prompt_file is None else read_prompts(prompt_file)
    is_pair = main is None or draft is not None
    if not is_pair and output is not None:
        raise OptionError(f"--output '{output}' has no use without DRAFT: a profile is for a pair")
    if not is_pair and not other_drafts and pairing is not None:
        raise OptionError(
            f"--pairing {pairing} has no use without a draft model: give DRAFT or --other-draft"
        )
    main_folder = embedded_folder("main") if main is None else locate(main)
    drafts = [locate(name) for name in other_drafts]
    if is_pair:
        drafts.insert(0, embedded_folder("draft") if draft is None else locate(draft))
    # Before a search that takes minutes: not all drafts can be paired.
    paired = [(folder, find_pairing(main_folder, folder, pairing)) for folder in drafts]
    given = Conditions(main_folder, device, seconds, pairing, sizes)
    report = _tune_pair(given, drafts[0], output, as_json) if is_pair else {}
    candidates = make_candidates(paired, None if output is None else Path(output))
    gains = _measure_candidates(given, candidates, prompts)
    if as_json:
        print_json({**report, "candidates": [_gain_as_dict(gain) for gain in gains]})
        return
    _print_table(gain_table(gains), GAINS_NOTE)
    click.echo(recommend(gains))


@dataclass(frozen=True)
class Conditions:
    """The main model, and how its drafters are measured. seconds: for the search, and for these."""

    main: Path
    device: str
    seconds: float
    pairing: PairingName | None
    static_shapes: StaticShapes


def _tune_pair(given: Conditions, draft: Path, output: str | None, as_json: bool) -> dict[str, Any]:
    """Search, write the profile and print what was found; returns it for JSON."""
    rows: list[tuple[str, ...]] = []
    with console.status("Measuring") as status:

        def note(role: str, trial: Trial | Refused) -> None:
            rows.append(describe_trial(role, trial))
            status.update(f"Measuring the {role} model: {rows[-1][1]}")

        tuner = Tuner(
            *(given.main, draft, given.device),
            seconds=given.seconds,
            note=note,
            pairing=given.pairing,
        )
        path = _profile_path(tuner.pair, output)
        tuning = tuner.run()
    tuning.profile.write(path)
    curve = _measure_costs(given, draft, path)
    if not as_json:
        _print_table([HEADER, ("---",) * len(HEADER), *rows], PASSES_NOTE)
        _print_table(curve_table(curve), CURVE_NOTE)
        for line in [*conclude(tuning), explain(curve)]:
            click.echo(line)
        click.echo(f"profile       {path}\n")
    return pair_report(tuning.profile, curve)


def _profile_path(pair: str, output: str | None) -> Path:
    """Where the profile goes; `OptionError` where it cannot, before a search that takes minutes."""
    path = default_path(pair) if output is None else Path(output)
    if path is None:
        raise OptionError("there is no home folder for the profile: give --output FILE")
    require_writable(path)
    return path


def _measure_costs(given: Conditions, draft: Path, profile: Path) -> CostCurve:
    """What passes cost with the properties of the profile."""
    with (
        console.status("Measuring what passes cost with the chosen settings"),
        SpeculativePipeline(
            *(given.main, draft),
            pairing=given.pairing,
            device=given.device,
            profile=profile,
            static_shapes=given.static_shapes,
        ) as pipeline,
    ):
        return pipeline.prepare(seconds=CURVE_SECONDS)


def pair_report(profile: Profile, curve: CostCurve) -> dict[str, Any]:
    """What was found of a pair, for JSON."""
    return {**profile.as_dict(), "costs": curve_as_dict(curve)}


def make_candidates(
    paired: Sequence[tuple[Path, UsedPairing | None]], profile: Path | None
) -> list[Candidate]:
    """Suffix matches, each draft model, and the first of them together with suffix matches.

    profile: of the first draft model, None for the one in the user's cache.
    """
    models = [Candidate("model", *draft) for draft in paired]
    first = [replace(model, profile=profile) for model in models[:1]]
    both = [replace(model, drafter="both") for model in first]
    return [Candidate("suffix"), *first, *models[1:], *both]


def _measure_candidates(
    given: Conditions, candidates: Sequence[Candidate], prompts: Sequence[str]
) -> list[Gain]:
    with console.status("Measuring drafters") as status:
        gains = []
        for candidate in candidates:
            status.update(f"Measuring {describe_candidate(candidate)}")
            gains.append(
                measure_gain(
                    *(given.main, candidate, given.device, prompts),
                    seconds=given.seconds / len(candidates),
                    static_shapes=given.static_shapes,
                )
            )
    return gains


def _print_table(rows: Sequence[tuple[str, ...]], note: str) -> None:
    """Print a table, and what it is below it."""
    for row in rows:
        click.echo(f"| {' | '.join(row)} |")
    click.echo(f"({note})\n")


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
    """The candidate to take, in a line.

    The fastest that pays, not the one with the greatest ratio: that is to plain decoding with the
    same properties, and a profile makes it faster for some candidates only.
    """
    best = max(gains, key=lambda gain: (gain.pays, gain.speed))
    if not all(gain.is_clear for gain in gains):
        return "to take       not clear yet: give more --seconds"
    if not best.pays:
        return (
            "to take       --drafter none: nothing is faster than plain decoding on these prompts"
        )
    candidate = best.candidate
    draft = "" if candidate.draft is None else f" --draft {as_argument(candidate.draft)}"
    pairing = "" if candidate.pairing is None else f" --pairing {candidate.pairing}"
    profile = "" if candidate.profile is None else f" --profile {as_argument(candidate.profile)}"
    return f"to take       --drafter {candidate.drafter}{draft}{pairing}{profile}"


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
    header = ("model", "cached", *map(str, COST_SIZES), "extra where the size changes")
    rows = [header, ("---",) * len(header)]
    for role, passes in (("main", curve.main), ("draft", curve.draft)):
        if passes is None:
            continue
        for cached in sorted(passes.seconds):
            values = [*(passes.at(size, cached) for size in COST_SIZES), passes.change]
            rows.append((role, str(cached), *(f"{1000 * value:.2f}" for value in values)))
    return rows


def explain(curve: CostCurve) -> str:
    """What the curve means for speculation."""
    least = break_even(curve, min(curve.main.seconds))
    if least is None:
        return "break-even    none: draft tokens cost more than they can yield"
    return f"break-even    speculation pays from {least:.0%} accepted draft tokens on"


def describe_trial(role: str, trial: Trial | Refused) -> tuple[str, ...]:
    """A row of the table."""
    settings = describe_settings(trial.properties)
    if isinstance(trial, Refused):
        return role, settings, *("refused" for _ in SIZES), "refused"
    milliseconds = (*trial.costs.seconds.values(), trial.costs.prefill)
    return role, settings, *(f"{1000 * value:.2f}" for value in milliseconds)


def conclude(tuning: Tuning) -> list[str]:
    """What was chosen, and what to expect of it."""
    profile, tuned, default = tuning.profile, tuning.tuned, tuning.default
    pays = f"pays: {tuned.ratio:.2f} times plain decoding" if tuned.draft_length else "does not pay"
    return [
        f"main          {describe_settings(profile.main_properties)} ({tuning.reasons['main']})",
        f"draft         {describe_settings(profile.draft_properties)} ({tuning.reasons['draft']})",
        f"speculation   {pays}, with {tuned.draft_length} draft tokens per round at best",
        f"to expect     {tuned.speed:.1f} tokens/s, {tuned.plain_speed:.1f} in plain decoding "
        f"(OpenVINO's defaults: {default.speed:.1f} and {default.plain_speed:.1f})",
        f"acceptance    {tuning.acceptance:.0%} of draft tokens, on sample prompts",
        f"other tokens  {tuning.changed['tuned']:.1%} of greedy choices are not those of exact "
        f"precision (defaults: {tuning.changed['default']:.1%})",
        f"invariant     {tuning.invariance}",
    ]
