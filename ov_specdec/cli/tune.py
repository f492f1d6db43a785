"""`ov-specdec tune`: find the fastest settings and drafter on this machine."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import click

from ov_specdec.bench.prompts import read_prompts
from ov_specdec.cli.declare import options_of, own_options
from ov_specdec.cli.models import PIPELINE
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
    make_candidates,
)
from ov_specdec.tuning.candidates import PROMPTS, measure_gain
from ov_specdec.tuning.passes import SIZES
from ov_specdec.tuning.search import describe_settings

PASSES = ("model", "settings", *map(str, SIZES), "prefill")
PASSES_NOTE = "trials: milliseconds of a pass by number of tokens"
GAINS = ("drafter", "tokens/s", "plain", "ratio", "quartiles", "runs", "tokens per pass")
GAINS_NOTE = "greedy, with the default draft length, interleaved with plain decoding"


@dataclass(frozen=True)
class Settings:
    """The best settings of a pair, the path of their profile, and a row for each trial."""

    tuning: Tuning
    path: Path
    rows: list[tuple[str, ...]]


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
    budget = Budget(seconds)
    found = None
    if is_pair:
        pair = (main_folder, drafts[0], device)
        found = _search(partial(Tuner, *pair, budget=budget, pairing=pairing), output)
    measure = partial(
        measure_gain,
        main_folder,
        device=device,
        prompts=prompts,
        budget=budget,
        static_shapes=static_shapes,
    )
    gains = _measure(measure, paired, found, budget)
    verdict = decide(gains)
    if found is not None and verdict.is_clear:
        found.tuning.profile.write(found.path)
    if as_json:
        print_json(
            {
                **(found.tuning.profile.as_dict() if found is not None else {}),
                "seconds": {"measuring": budget.spent, "loading": budget.loading},
                "candidates": [gain.as_dict() for gain in gains],
                "verdict": {"is_clear": verdict.is_clear, **verdict.best.as_dict()},
            }
        )
    else:
        click.echo("\n".join(_report(found, gains, verdict, budget, output)))


def _report(
    found: Settings | None,
    gains: Sequence[Gain],
    verdict: Verdict,
    budget: Budget,
    output: str | None,
) -> Iterator[str]:
    """The tables and the verdict as lines of text."""
    yield from table(GAINS, map(gain_row, gains), GAINS_NOTE)
    if found is not None:
        yield from table(PASSES, found.rows, PASSES_NOTE)
        yield from describe_settings_of(found.tuning)
        yield f"profile       {found.path if verdict.is_clear else 'not written'}"
    yield f"took          {budget.spent:.0f} s of measurement, {budget.loading:.0f} s of loading"
    yield f"verdict       {describe(verdict, output)}"


def _refuse_what_is_for_a_pair(output: str | None, pairing: PairingName | None) -> None:
    if output is not None:
        raise OptionError(f"--output '{output}' has no effect without DRAFT: give both")
    if pairing is not None:
        raise OptionError(
            f"--pairing {pairing} has no effect without a draft model: give DRAFT or --other-draft"
        )


def _search(make_tuner: Callable[..., Tuner], output: str | None) -> Settings:
    rows: list[tuple[str, ...]] = []
    with console.status("Measuring") as status:

        def note(role: str, trial: Trial | Refused) -> None:
            rows.append(describe_trial(role, trial))
            status.update(f"Measuring the {role} model: {rows[-1][1]}")

        tuner = make_tuner(note=note)
        path = default_path(tuner.pair) if output is None else Path(output)
        if path is None:
            raise OptionError("there is no home folder for the profile: give --output FILE")
        require_writable(path)  # before a search of minutes
        return Settings(tuner.run(), path, rows)


def _measure(
    measure: Callable[..., Gain],
    paired: Sequence[tuple[Path, UsedPairing | None]],
    found: Settings | None,
    budget: Budget,
) -> list[Gain]:
    """The gains of candidates, in order, while there is time; at least that of the first."""
    gains: list[Gain] = []
    with TemporaryDirectory() as scratch, console.status("Measuring drafters") as status:
        profile = None
        if found is not None:
            profile = Path(scratch) / "profile.json"
            found.tuning.profile.write(profile)
        candidates = make_candidates(paired, profile)
        for place, candidate in enumerate(candidates):
            if gains and budget.left <= 0.0:
                break
            status.update(f"Measuring {describe_candidate(candidate)}")
            gains.append(measure(candidate, seconds=budget.left / (len(candidates) - place)))
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
