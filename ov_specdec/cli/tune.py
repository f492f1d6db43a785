"""`ov-specdec tune`: find the fastest settings and drafter on this machine."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import click
from rich.console import Console

from ov_specdec.cli.declare import MODELS, command, options_of, take
from ov_specdec.cli.options import PIPELINE
from ov_specdec.cli.terminal import console, print_json
from ov_specdec.errors import OptionError
from ov_specdec.files import record_file
from ov_specdec.generation.pipeline_options import is_pair
from ov_specdec.measure.drafters import (
    Gain,
    decide,
    make_candidates,
    measure_all,
    possible_vocabularies,
)
from ov_specdec.measure.methods import make_table
from ov_specdec.measure.prompts import TUNING, read_prompts
from ov_specdec.measure.properties import (
    CHANGED,
    INVARIANT,
    PRICES,
    Found,
    Tuner,
    describe_settings,
)
from ov_specdec.models.exported import find_pairing
from ov_specdec.models.locate import locate
from ov_specdec.models.profile import Profile, require_writable
from ov_specdec.options.model import Options, option
from ov_specdec.planning.costs import Role
from ov_specdec.text.pairing import PairingName, UsedPairing


class TuneOptions(Options):
    """Options of `tune`, besides those of pipelines."""

    seconds: float = option(
        100.0, "Time in seconds. Large models, which load for long, need more.", gt=0
    )
    other_drafts: Sequence[str] = option(
        (),
        "Compare another draft model, such as the main model's weights in int4.",
        metavar="DIR",
        flag="other-draft",
    )
    prompt_file: Path | None = option(
        None,
        'Compare drafters on these prompts: one per line, or "prompt" objects in a .jsonl file.',
        unset="code, a question, a function to rewrite",
    )
    output: str | None = option(
        None, "Write the profile to a file.", unset="in the user's cache", metavar="FILE"
    )
    as_json: bool = option(False, "Print all trials and the profile as JSON.", flag="json")


@command(
    "[MAIN] [DRAFT]",
    options_of(PIPELINE, *MODELS, "device", "pairing", "static_shapes"),
    options_of(TuneOptions.model_fields),
)
def tune(
    main: str | None, draft: str | None, device: str, pairing: PairingName | None, **options: Any
) -> None:
    """Find the fastest settings and drafter for MAIN and DRAFT, or for the embedded pair.

    It searches settings without static shapes. Then it compares drafters with plain decoding: both,
    the draft model, suffix matches, other drafts, and the draft with fewer tokens. If the verdict
    is clear, it writes settings that are faster beyond noise to a profile, which later runs of the
    same models on this machine use by default. A profile with --output has to be given with
    --profile. MAIN alone gets none.
    """
    start, given = perf_counter(), take(options, ("static_shapes",))
    asked = TuneOptions(**options)
    prompts = TUNING if asked.prompt_file is None else read_prompts(asked.prompt_file)
    paired = _find_pairings(main, draft, pairing, asked)
    given |= {"main": locate(main), "device": device}
    settings = tuned = None
    with console.status("Measuring") as status, TemporaryDirectory() as scratch:
        note: Callable[[object], None] = lambda what: status.update(f"Measuring {what}")  # noqa: E731
        vocabularies: Iterable[int] = ()
        if is_pair(main, draft):
            tuner = Tuner(given["main"], paired[0][0], device, asked.seconds, note)
            settings = PairSettings.search(tuner, asked.output)
            tuned = settings.write(Path(scratch, "tuned"))
            vocabularies = possible_vocabularies(*paired[0])
        candidates = make_candidates(paired, tuned, vocabularies)
        gains = measure_all(candidates, start + asked.seconds, prompts, given, note)
    best, is_clear = decide(gains)
    took = perf_counter() - start
    kept = (settings.write(settings.path) or "none") if settings and is_clear else "not written"
    if asked.as_json:
        report = {} if settings is None else settings.as_dict()
        report |= {"seconds": took, "candidates": [gain.as_dict() for gain in gains]}
        print_json({**report, "verdict": {"is_clear": is_clear, **best.as_dict()}})
        return
    Console(width=160).print(make_table([gains[0].plain, *(gain.row for gain in gains)]))
    if settings is not None:
        click.echo("\n".join([*settings.lines(), f"profile       {kept}"]))
    verdict = in_words(best, is_clear, asked.output)
    click.echo(f"took          {took:.0f} s\nverdict       {verdict}")


def _find_pairings(
    main: str | None, draft: str | None, pairing: PairingName | None, asked: TuneOptions
) -> list[tuple[Path, UsedPairing | None]]:
    """The folders of draft models, the pair's first, and how each is paired; not all can be."""
    has_draft = is_pair(main, draft)
    if not has_draft and asked.output is not None:
        raise OptionError(f"--output '{asked.output}' has no effect without DRAFT: give both")
    if not has_draft and not asked.other_drafts and pairing is not None:
        problem = f"--pairing {pairing} has no effect without a draft model"
        raise OptionError(f"{problem}: give DRAFT or --other-draft")
    main_folder, drafts = locate(main), [locate(name) for name in asked.other_drafts]
    if has_draft:
        drafts.insert(0, locate(draft, "draft"))
    return [(folder, find_pairing(main_folder, folder, pairing)) for folder in drafts]


@dataclass(frozen=True)
class PairSettings:
    """The fastest settings of a pair, what was found for each model, and the profile's file."""

    profile: Profile
    found: Mapping[Role, Found]
    path: Path

    @classmethod
    def search(cls, tuner: Tuner, output: str | None) -> "PairSettings":
        """Find them. Raises `OptionError`, before minutes, if the file cannot be written."""
        path = record_file(tuner.pair) if output is None else Path(output)
        if path is None:
            raise OptionError("there is no home folder for the profile: give --output FILE")
        require_writable(path)
        return cls(*tuner.run(), path)

    def write(self, path: Path) -> Path | None:
        """Write a profile, or remove an earlier one if OpenVINO's defaults are the fastest."""
        if not self.profile.main_properties and not self.profile.draft_properties:
            path.unlink(missing_ok=True)
            return None
        self.profile.write(path)
        return path

    def as_dict(self) -> dict[str, Any]:
        """The profile and all trials for JSON."""
        trials = [
            {"model": role, "properties": properties, "pass_seconds": seconds}
            for role, found in self.found.items()
            for properties, seconds in found.trials
        ]
        return {**self.profile.as_dict(), "trials": trials}

    def lines(self) -> list[str]:
        """The chosen settings, and the tokens that they change."""
        main, draft, profile = self.found["main"], self.found["draft"], self.profile
        return [
            f"main          {describe_settings(profile.main_properties)} ({main.reason})",
            f"draft         {describe_settings(profile.draft_properties)} ({draft.reason})",
            f"other tokens  {profile.report[CHANGED]:.1%} of greedy choices differ from exact "
            "precision",
            f"invariant     {profile.report[INVARIANT]}",
            "main passes   " + "".join(f"{name:>14}" for name in profile.report[PRICES]),
            "milliseconds  " + "".join(f"{ms:14.2f}" for ms in profile.report[PRICES].values()),
        ]


def in_words(best: Gain, is_clear: bool, output: str | None = None) -> str:
    """The recommended drafter with its speedup over plain decoding, in a line."""
    candidate = best.candidate
    number = f"{best.row.ratio:.2f} times as fast as plain decoding"
    if not is_clear:
        turns = f"in {best.row.num_turns} turns: give more --seconds"
        return f"not clear: --drafter {candidate.drafter} is {number} {turns}"
    if not best.pays:
        return f"give --drafter none: the best other, {candidate}, is {number}"
    draft = "" if candidate.draft is None else f" --draft {quote(str(candidate.draft))}"
    pairing = "" if candidate.pairing is None else f" --pairing {candidate.pairing}"
    is_named = output is not None and candidate.profile is not None
    profile = f" --profile {quote(output or '')}" if is_named else ""
    size = candidate.draft_vocabulary
    vocabulary = "" if size == "full" else f" --draft-vocabulary {size}"
    return f"give --drafter {candidate.drafter}{draft}{pairing}{vocabulary}{profile}: {number}"
