"""`ov-specdec tune`: find the fastest settings and drafter on this machine."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import click
from rich.console import Console

from ov_specdec.cli.declare import MODELS, command, options_of
from ov_specdec.cli.options import PIPELINE
from ov_specdec.cli.terminal import console, print_json
from ov_specdec.errors import OptionError
from ov_specdec.files import record_file
from ov_specdec.generation.pipeline_options import require_main
from ov_specdec.measure.drafters import (
    Gain,
    decide,
    make_candidates,
    measure_all,
    possible_vocabularies,
)
from ov_specdec.measure.methods import make_table
from ov_specdec.measure.prompts import TUNING, read_prompts
from ov_specdec.measure.properties import CHANGED, INVARIANT, Found, Tuner, describe_settings
from ov_specdec.models.devices import StaticSizes
from ov_specdec.models.exported import find_pairing
from ov_specdec.models.locate import locate
from ov_specdec.models.profile import Profile, require_writable
from ov_specdec.options.model import option
from ov_specdec.planning.costs import Role
from ov_specdec.text.pairing import PairingName


@command("[MAIN] [DRAFT]", options_of(PIPELINE, *MODELS, "device", "pairing", "static_shapes"))
def tune(
    *,
    main: str | None,
    draft: str | None,
    device: str,
    seconds: float = option(
        100.0, "Time in seconds. Large models, which load for long, need more.", gt=0
    ),
    other_drafts: Sequence[str] = option(
        (),
        "Compare another draft model, such as the main model's weights in int4.",
        metavar="DIR",
        flag="other-draft",
    ),
    pairing: PairingName | None,
    static_shapes: StaticSizes,
    prompt_file: Path | None = option(
        None,
        'Compare drafters on these prompts: one per line, or "prompt" objects in a .jsonl file.',
        unset="code, a question, a function to rewrite",
    ),
    output: str | None = option(
        None, "Write the profile to a file.", unset="in the user's cache", metavar="FILE"
    ),
    as_json: bool = option(False, "Print all trials and the profile as JSON.", flag="json"),
) -> None:
    """Find the fastest settings and drafter for MAIN and DRAFT, or for the embedded pair.

    It searches settings without static shapes. Then it compares drafters with plain decoding: the
    draft model, suffix matches, both, other drafts, and the draft with fewer tokens. If the verdict
    is clear, it writes settings that are faster beyond noise to a profile, which later runs of the
    same models on this machine use by default. A profile with --output has to be given with
    --profile. MAIN alone gets none.
    """
    start = perf_counter()
    prompts = TUNING if prompt_file is None else read_prompts(prompt_file)
    require_main(main, draft)
    is_pair = main is None or draft is not None
    if not is_pair and output is not None:
        raise OptionError(f"--output '{output}' has no effect without DRAFT: give both")
    if not is_pair and not other_drafts and pairing is not None:
        raise OptionError(
            f"--pairing {pairing} has no effect without a draft model: give DRAFT or --other-draft"
        )
    main_folder, drafts = locate(main), [locate(name) for name in other_drafts]
    if is_pair:
        drafts.insert(0, locate(draft, "draft"))
    # Before a search of minutes: not all drafts can be paired.
    paired = [(folder, find_pairing(main_folder, folder, pairing)) for folder in drafts]
    profile = path = tuned = None
    found: Mapping[Role, Found] = {}
    with console.status("Measuring") as status, TemporaryDirectory() as scratch:

        def note(what: object) -> None:
            status.update(f"Measuring {what}")

        if is_pair:
            tuner = Tuner(main_folder, drafts[0], device, seconds, note)
            path = record_file(tuner.pair) if output is None else Path(output)
            if path is None:
                raise OptionError("there is no home folder for the profile: give --output FILE")
            require_writable(path)  # known before a search of minutes
            profile, found = tuner.run()
            tuned = write_profile(profile, Path(scratch, "tuned"))
        vocabularies = possible_vocabularies(*paired[0]) if is_pair else ()
        candidates = make_candidates(paired, tuned, vocabularies)
        arguments = {"main": main_folder, "device": device, "static_shapes": static_shapes}
        gains = measure_all(candidates, start + seconds, prompts, arguments, note)
    best, is_clear = decide(gains)
    took = perf_counter() - start
    if profile is not None and path is not None and is_clear:
        tuned = write_profile(profile, path)
    if as_json:
        report = {} if profile is None else _as_dict(profile, found)
        report |= {"seconds": took, "candidates": [gain.as_dict() for gain in gains]}
        print_json({**report, "verdict": {"is_clear": is_clear, **best.as_dict()}})
        return
    Console(width=160).print(make_table([gains[0].plain, *(gain.row for gain in gains)]))
    if profile is not None:
        kept = (tuned or "none") if is_clear else "not written"
        click.echo("\n".join([*describe_profile(profile, found), f"profile       {kept}"]))
    click.echo(f"took          {took:.0f} s\nverdict       {describe(best, is_clear, output)}")


def write_profile(profile: Profile, path: Path) -> Path | None:
    """Write a profile, or remove an earlier one if OpenVINO's defaults are the fastest."""
    if not profile.main_properties and not profile.draft_properties:
        path.unlink(missing_ok=True)
        return None
    profile.write(path)
    return path


def _as_dict(profile: Profile, searched: Mapping[Role, Found]) -> dict[str, Any]:
    """The profile and all trials for JSON."""
    trials = [
        {"model": role, "properties": properties, "pass_seconds": seconds}
        for role, found in searched.items()
        for properties, seconds in found.trials
    ]
    return {**profile.as_dict(), "trials": trials}


def describe(best: Gain, is_clear: bool, output: str | None = None) -> str:
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


def describe_profile(profile: Profile, searched: Mapping[Role, Found]) -> list[str]:
    """The chosen settings, and the tokens that they change."""
    main, draft, changed = searched["main"], searched["draft"], profile.report[CHANGED]
    return [
        f"main          {describe_settings(profile.main_properties)} ({main.reason})",
        f"draft         {describe_settings(profile.draft_properties)} ({draft.reason})",
        f"other tokens  {changed:.1%} of greedy choices differ from exact precision",
        f"invariant     {profile.report[INVARIANT]}",
    ]
