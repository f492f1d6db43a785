"""`ov-specdec tune`: find the fastest settings and drafter on this machine."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import click

from ov_specdec.bench.prompts import read_prompts
from ov_specdec.cli.declare import options_of, own_options
from ov_specdec.cli.model_options import PIPELINE
from ov_specdec.cli.terminal import console, print_json, with_errors
from ov_specdec.description import About
from ov_specdec.errors import OptionError
from ov_specdec.files import as_argument
from ov_specdec.loading.locate import embedded_folder, locate
from ov_specdec.loading.profile import default_path, require_writable
from ov_specdec.loading.static_shapes import WantedShapes
from ov_specdec.pipeline_models import find_pairing
from ov_specdec.text.pairing import PairingName, UsedPairing
from ov_specdec.tuning import (
    Budget,
    Candidate,
    Gain,
    Refused,
    Trial,
    Tuner,
    Tuning,
    Verdict,
    decide,
)
from ov_specdec.tuning.candidates import PROMPTS, measure_gain
from ov_specdec.tuning.passes import SIZES
from ov_specdec.tuning.search import describe_settings

PASSES = ("model", "settings", *map(str, SIZES), "prefill")
PASSES_NOTE = "trials: milliseconds of a pass by number of tokens"
GAINS = ("drafter", "tokens/s", "plain", "ratio", "quartiles", "runs", "tokens per pass")
GAINS_NOTE = "greedy, with the default draft length, interleaved with plain decoding"


@click.command()
@with_errors
@click.argument("main", required=False)
@click.argument("draft", required=False)
@own_options
@options_of(PIPELINE, "device", "pairing", "static_shapes")
def tune(
    main: str | None,
    draft: str | None,
    *,
    device: str,
    seconds: Annotated[
        float,
        About("Time budget in seconds for all measurements, without loading models.", above=0.0),
    ] = 100.0,
    other_drafts: Annotated[
        Sequence[str],
        About(
            "Compare another draft model, such as the main model's weights in int4.",
            metavar="DIR",
            flag="other-draft",
        ),
    ] = (),
    pairing: PairingName | None,
    static_shapes: WantedShapes,
    prompt_file: Annotated[
        Path | None,
        About(
            "Compare drafters on these prompts, one per line.",
            unset="code, a question, a function to rewrite",
        ),
    ] = None,
    output: Annotated[
        str | None,
        About("Write the profile to a file.", unset="in the user's cache", metavar="FILE"),
    ] = None,
    as_json: Annotated[
        bool, About("Print the profile instead of the tables.", flag="json")
    ] = False,
) -> None:
    """Find the fastest settings and drafter for MAIN and DRAFT, or for the embedded pair.

    It searches settings without static shapes. Then it compares drafters with plain decoding: the
    draft model, suffix matches, both, and other drafts. If the verdict is clear, it writes the
    settings to a profile, which later runs with the same models on this machine use by default. A
    profile with --output has to be given with --profile. MAIN alone gets no profile.
    """
    prompts = PROMPTS if prompt_file is None else read_prompts(prompt_file)
    is_pair = main is None or draft is not None
    if not is_pair:
        _refuse_what_is_for_a_pair(output, None if other_drafts else pairing)
    main_folder = embedded_folder("main") if main is None else locate(main)
    drafts = [locate(name) for name in other_drafts]
    if is_pair:
        drafts.insert(0, embedded_folder("draft") if draft is None else locate(draft))
    # Before a search of minutes: not all drafts can be paired.
    paired = [(folder, find_pairing(main_folder, folder, pairing)) for folder in drafts]
    given = Conditions(main_folder, device, pairing, static_shapes, Budget(seconds))
    found = None if not is_pair else _search(given, drafts[0], output)
    with TemporaryDirectory() as scratch:
        trial = None
        if found is not None:
            trial = Path(scratch) / "profile.json"
            found.tuning.profile.write(trial)
        gains = _measure(given, make_candidates(paired, trial), prompts)
    verdict = decide(gains)
    if found is not None and verdict.is_clear:
        found.tuning.profile.write(found.path)
    if as_json:
        print_json(
            {
                **(found.tuning.profile.as_dict() if found is not None else {}),
                "seconds": {"measuring": given.budget.spent, "loading": given.budget.loading},
                "candidates": [_gain_as_dict(gain) for gain in gains],
                "verdict": {"is_clear": verdict.is_clear, **_gain_as_dict(verdict.best)},
            }
        )
    else:
        _print(found, gains, verdict, given.budget, output)


def _print(
    found: "Settings | None",
    gains: Sequence[Gain],
    verdict: Verdict,
    budget: Budget,
    output: str | None,
) -> None:
    """Print the tables and the verdict."""
    lines = table(GAINS, map(gain_row, gains), GAINS_NOTE)
    if found is not None:
        profile = found.path if verdict.is_clear else "not written"
        lines += [*table(PASSES, found.rows, PASSES_NOTE), *describe_settings_of(found.tuning)]
        lines.append(f"profile       {profile}")
    times = f"{budget.spent:.0f} s of measurement, {budget.loading:.0f} s of loading"
    for line in (*lines, f"took          {times}", f"verdict       {describe(verdict, output)}"):
        click.echo(line)


def _refuse_what_is_for_a_pair(output: str | None, pairing: PairingName | None) -> None:
    if output is not None:
        raise OptionError(f"--output '{output}' has no effect without DRAFT: give both")
    if pairing is not None:
        raise OptionError(
            f"--pairing {pairing} has no effect without a draft model: give DRAFT or --other-draft"
        )


@dataclass(frozen=True)
class Conditions:
    """The main model, and the conditions and time budget of measurements."""

    main: Path
    device: str
    pairing: PairingName | None
    static_shapes: WantedShapes
    budget: Budget


@dataclass(frozen=True)
class Settings:
    """The best settings of a pair, the path of their profile, and a row for each trial."""

    tuning: Tuning
    path: Path
    rows: list[tuple[str, ...]]


def _search(given: Conditions, draft: Path, output: str | None) -> Settings:
    rows: list[tuple[str, ...]] = []
    with console.status("Measuring") as status:

        def note(role: str, trial: Trial | Refused) -> None:
            rows.append(describe_trial(role, trial))
            status.update(f"Measuring the {role} model: {rows[-1][1]}")

        tuner = Tuner(
            *(given.main, draft, given.device),
            budget=given.budget,
            note=note,
            pairing=given.pairing,
        )
        path = default_path(tuner.pair) if output is None else Path(output)
        if path is None:
            raise OptionError("there is no home folder for the profile: give --output FILE")
        require_writable(path)  # before a search of minutes
        return Settings(tuner.run(), path, rows)


def make_candidates(
    paired: Sequence[tuple[Path, UsedPairing | None]], profile: Path | None
) -> list[Candidate]:
    """Suffix matches, each draft model, and the first draft model with suffix matches.

    profile: of the first draft model.
    """
    models = [Candidate("model", *draft) for draft in paired]
    first = [replace(model, profile=profile) for model in models[:1]]
    both = [replace(model, drafter="both") for model in first]
    return [*first, Candidate("suffix"), *models[1:], *both]


def _measure(
    given: Conditions, candidates: Sequence[Candidate], prompts: Sequence[str]
) -> list[Gain]:
    """The gains of candidates, in order, while there is time; at least that of the first."""
    gains: list[Gain] = []
    with console.status("Measuring drafters") as status:
        for place, candidate in enumerate(candidates):
            if gains and given.budget.left <= 0.0:
                break
            status.update(f"Measuring {describe_candidate(candidate)}")
            seconds = given.budget.left / (len(candidates) - place)
            gains.append(
                measure_gain(
                    *(given.main, candidate, given.device, prompts),
                    seconds=seconds,
                    budget=given.budget,
                    static_shapes=given.static_shapes,
                )
            )
    return gains


def table(header: Sequence[str], rows: Iterable[Sequence[str]], note: str) -> list[str]:
    """The lines of a table, and a note below it."""
    lines = [header, ["---"] * len(header), *rows]
    return [*(f"| {' | '.join(line)} |" for line in lines), f"({note})", ""]


def gain_row(gain: Gain) -> tuple[str, ...]:
    """A candidate's row of the table."""
    return (
        describe_candidate(gain.candidate),
        f"{gain.speed:.1f}",
        f"{gain.plain_speed:.1f}",
        f"{gain.ratio:.2f}",
        "{:.2f} to {:.2f}".format(*gain.quartiles),
        str(len(gain.ratios)),
        f"{gain.tokens_per_pass:.2f}",
    )


def describe(verdict: Verdict, output: str | None = None) -> str:
    """The recommended drafter with its speedup over plain decoding, in a line."""
    gain = verdict.best
    candidate = gain.candidate
    number = "{:.2f} times as fast as plain decoding ({:.2f} to {:.2f})".format(
        gain.ratio, *gain.quartiles
    )
    if not verdict.is_clear:
        runs = f"in {len(gain.ratios)} runs: give more --seconds"
        return f"not clear: --drafter {candidate.drafter} is {number} {runs}"
    if not gain.pays:
        return f"give --drafter none: the best other, {describe_candidate(candidate)}, is {number}"
    draft = "" if candidate.draft is None else f" --draft {as_argument(candidate.draft)}"
    pairing = "" if candidate.pairing is None else f" --pairing {candidate.pairing}"
    profile = ""
    if output is not None and candidate.profile is not None:
        profile = f" --profile {as_argument(Path(output))}"
    return f"give --drafter {candidate.drafter}{draft}{pairing}{profile}: {number}"


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


def describe_trial(role: str, trial: Trial | Refused) -> tuple[str, ...]:
    """A row of the table."""
    settings = describe_settings(trial.properties)
    if isinstance(trial, Refused):
        return role, settings, *("refused" for _ in SIZES), "refused"
    milliseconds = (*trial.costs.seconds.values(), trial.costs.prefill)
    return role, settings, *(f"{1000 * value:.2f}" for value in milliseconds)


def describe_settings_of(tuning: Tuning) -> list[str]:
    """The chosen settings, and the tokens that they change."""
    profile = tuning.profile
    return [
        f"main          {describe_settings(profile.main_properties)} ({tuning.reasons['main']})",
        f"draft         {describe_settings(profile.draft_properties)} ({tuning.reasons['draft']})",
        f"other tokens  {tuning.changed:.1%} of greedy choices differ from exact precision",
        f"invariant     {tuning.invariance}",
    ]
