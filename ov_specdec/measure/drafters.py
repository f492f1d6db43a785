"""Times drafters against plain decoding, and chooses the fastest that pays."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Literal

from ov_specdec.drafters.factory import DrafterName
from ov_specdec.errors import OptionError
from ov_specdec.measure.methods import (
    ALIKE,
    BASELINE,
    Answer,
    SummaryRow,
    Turn,
    answer_together,
    interleave,
    open_measured,
    summarize,
)
from ov_specdec.measure.properties import GAIN
from ov_specdec.options.generation import PLAIN
from ov_specdec.text.pairing import PairingName, UsedPairing
from ov_specdec.text.tokenizer import load_tokenizer

VOCABULARIES = (16_384, 32_768, 65_536)
"""Values of `draft_vocabulary` to try."""

ENOUGH_TURNS = 4
"""Minimum number of turns for a result: single ones differ by a third."""


@dataclass(frozen=True)
class Candidate:
    """A drafter to time, with its draft model, pairing and profile, if it has them."""

    drafter: DrafterName
    draft: Path | None = None
    pairing: PairingName | None = None
    profile: Path | None = None
    draft_vocabulary: int | Literal["full"] = "full"

    def __str__(self) -> str:
        name = f"{self.drafter} {self.draft.name}" if self.draft else self.drafter
        is_full = self.draft_vocabulary == "full"
        return name if is_full else f"{name}, {self.draft_vocabulary} tokens"


@dataclass(frozen=True)
class Gain:
    """The measured speeds of a candidate, and of plain decoding with its models."""

    candidate: Candidate
    plain: SummaryRow
    row: SummaryRow

    @property
    def is_clear(self) -> bool:
        """Whether there are enough turns for a result."""
        return self.row.num_turns >= ENOUGH_TURNS

    @property
    def pays(self) -> bool:
        """Whether it is faster than plain decoding beyond noise."""
        ratio = self.row.ratio
        return self.is_clear and ratio.median * GAIN > 1.0 and ratio.low > 1.0

    def as_dict(self) -> dict[str, Any]:
        """All of it for JSON."""
        draft = None if self.candidate.draft is None else str(self.candidate.draft)
        vocabulary = {"draft_vocabulary": self.candidate.draft_vocabulary}
        own = {"drafter": self.candidate.drafter, "draft": draft, "pays": self.pays, **vocabulary}
        return {**own, **asdict(self.row), "plain": asdict(self.plain)}


def make_candidates(
    paired: Sequence[tuple[Path, UsedPairing | None]],
    profile: Path | None,
    vocabularies: Iterable[int] = (),
) -> list[Candidate]:
    """The first draft model with suffix matches, each alone, others, and it with fewer tokens.

    profile, vocabularies: of the first draft model.
    """
    models = [Candidate("model", *draft) for draft in paired]
    first = [replace(model, profile=profile) for model in models[:1]]
    both = [replace(model, drafter="both") for model in first]
    reduced = [replace(model, draft_vocabulary=n) for model in first for n in vocabularies]
    return [*both, *first, Candidate("suffix"), *models[1:], *reduced]


def possible_vocabularies(draft: Path, pairing: UsedPairing | None) -> Iterator[int]:
    """Those of `VOCABULARIES` that a draft model can have."""
    tokenizer = load_tokenizer(draft)
    for count in VOCABULARIES if pairing is None else ():
        with suppress(OptionError):
            tokenizer.first_tokens(count)
            yield count


def decide(gains: Sequence[Gain]) -> tuple[Gain, bool]:
    """The fastest candidate that pays, and whether the measurements suffice to say so.

    If none pays, the best of them, and plain decoding should be used. Only some have a profile,
    which makes their plain decoding faster too. Those that share one are compared by their ratios,
    since the machine's speed drifts between candidates.
    """

    def speed(gain: Gain) -> float:
        profile = gain.candidate.profile
        alike = [other.plain for other in gains if other.candidate.profile == profile]
        return gain.row.ratio.median * median(row.tokens_per_second.median for row in alike)

    best = max(gains, key=lambda own: (own.pays, speed(own) if own.pays else own.row.ratio.median))
    loses = all(gain.is_clear and gain.row.ratio.median * GAIN <= 1.0 for gain in gains)
    return best, best.pays or loses


def measure_all(
    candidates: Sequence[Candidate],
    end: float,
    prompts: Sequence[str],
    arguments: Mapping[str, Any],
    note: Callable[[Candidate], object],
) -> list[Gain]:
    """The gains of candidates, in order, until the end by `perf_counter`; at least the first's."""
    gains: list[Gain] = []
    for index, candidate in enumerate(candidates):
        left = end - perf_counter()
        if gains and left < 0.0:
            break
        note(candidate)
        gains.append(measure_gain(candidate, left / (len(candidates) - index), prompts, arguments))
    return gains


def measure_gain(
    candidate: Candidate, seconds: float, prompts: Sequence[str], arguments: Mapping[str, Any]
) -> Gain:
    """Time greedy decoding of prompts with a candidate and plainly, with the default draft length.

    seconds: with loading, after which no further prompt starts; one is measured in any case, and
    all are repeated while there is time. arguments: of the pipeline, besides the candidate's.
    Raises the errors of `SpeculativePipeline`.
    """
    end = perf_counter() + seconds
    turns: list[Turn] = []
    own = {**asdict(candidate), "profile": candidate.profile or "none"}
    with open_measured(**arguments, **own) as pipeline:
        pipeline.prepare()
        options = {"max_new_tokens": 64, **ALIKE}
        answers: dict[str, Answer] = {
            BASELINE: partial(answer_together, pipeline, {**options, **PLAIN}),
            str(candidate): partial(answer_together, pipeline, options),
        }
        next(interleave(answers, [prompts[:1]]))  # the first run of each takes longer
        for turn in interleave(answers, ([prompt] for prompt in cycle(prompts))):
            turns.append(turn)
            if perf_counter() > end:
                break
    plain, row = summarize(turns)
    return Gain(candidate, plain, row)
