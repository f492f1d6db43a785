"""What a generation did, round by round; every figure is derived from these records."""

import itertools
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Literal, NamedTuple

FinishReason = Literal["stop", "length", "cancelled"]
"""What ended an output: an end-of-sequence token or a stop string, the token budget, a user."""


LengthLimit = Literal["kv_cache_size", "max_model_len", "max_new_tokens"]
"""What an output may be no longer for: memory, the model's context, or what was asked for."""


@dataclass(slots=True)
class RoundStats:
    """One round: tokens drafted, one pass of the main model, rollback.

    Not to be changed. It is not frozen, since each sequence of a batch makes one in each step, and
    to make one takes 3 us instead of 12 then.

    num_generated: tokens that the round added to the text: num_accepted + 1, unless the text ended
    in the middle of them.
    seconds: the whole round, with what the three parts leave out.
    pass_tokens: tokens that the main model was fed. num_sequences: those that shared its pass; the
    seconds are those of all of them. source: where the draft tokens came from.
    cached_tokens: tokens in its KV cache before. planned, reason: the draft length that the policy
    chose, and why, in one word. expected_accepted: how many of the draft tokens the policy expected
    to be accepted. draft_pass_tokens: tokens that the draft model was fed. declined: a match that
    the policy turned down, by source and confidence, and whether its first draft token came all the
    same. draft_failed: the draft model gave no distribution, and ended for this sequence.
    confidences, match_confidence: see `Proposal`.
    """

    num_drafted: int
    num_accepted: int
    num_generated: int
    draft_seconds: float
    verify_seconds: float
    rollback_seconds: float
    seconds: float
    pass_tokens: int = 0
    source: str = ""
    planned: int = 0
    reason: str = ""
    confidences: tuple[float, ...] = ()
    match_confidence: float | None = None
    cached_tokens: int = 0
    draft_pass_tokens: int = 0
    expected_accepted: float = 0.0
    declined: tuple[str, float, bool] | None = None
    num_sequences: int = 1
    draft_failed: bool = False

    @property
    def num_kept(self) -> int:
        """Accepted draft tokens that are part of the text, which may have ended among them."""
        return min(self.num_accepted, self.num_generated)


class PassStats(NamedTuple):
    """One pass of a model over one sequence or several.

    num_tokens: that it was fed, padding included. num_cached: in the KV caches before, of all of
    its sequences. num_prefill: how many of the tokens are of prompts in their prefill. seconds:
    with what choosing tokens by its logits takes.
    """

    num_tokens: int
    num_cached: int
    num_sequences: int
    num_prefill: int
    seconds: float


@dataclass(frozen=True)
class BatchInvariance:
    """Whether a token's logits are bitwise the same in any pass, and why that is said.

    is_on: passes of the main model have the form for it. is_checked: it was seen on this machine,
    with this model and these settings.
    """

    is_on: bool
    reason: str
    is_checked: bool = False

    @property
    def is_proven(self) -> bool:
        """Whether the check has passed."""
        return self.is_on and self.is_checked

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        return {"is_on": self.is_on, "is_checked": self.is_checked, "reason": self.reason}

    def __str__(self) -> str:
        return f"{'on' if self.is_on else 'off'} ({self.reason})"


class StepStats(NamedTuple):
    """Passes of the draft model, then one of the main model: a round of some sequences."""

    main: PassStats
    drafts: tuple[PassStats, ...] = ()


NOT_INVARIANT = BatchInvariance(False, "an encoder-decoder model")
"""Of models whose passes have one form only."""


@dataclass(repr=False)
class GenerationStats:
    """The record of one generation. Its first round is the prefill: it reads the prompt.

    batch_invariant: whether its text depends on nothing but prompt, options and model.
    max_sequences: that the KV caches hold at a time, while others wait; None: what memory allows.
    length_limit: what ended it, where it ended with "length". stop_string: the one that ended it,
    if any.
    """

    prompt_tokens: int
    rounds: list[RoundStats] = field(default_factory=list)
    batch_invariant: BatchInvariance = NOT_INVARIANT
    max_sequences: int | None = None
    length_limit: LengthLimit = "max_new_tokens"
    stop_string: str | None = None

    def __repr__(self) -> str:
        return (
            f"GenerationStats({self.generated_tokens} tokens in {self.seconds:.2f} s, "
            f"{self.tokens_per_second:.0f} tokens/s, {self.acceptance_rate:.0%} of {self.drafted} "
            f"draft tokens accepted, {self.tokens_per_main_pass:.1f} tokens a pass)"
        )

    @property
    def cached_tokens(self) -> int:
        """Tokens of the prompt that were in the KV cache already, and so were not read again."""
        return self.rounds[0].cached_tokens if self.rounds else 0

    @property
    def generated_tokens(self) -> int:
        """Tokens of the output."""
        return sum(r.num_generated for r in self.rounds)

    @property
    def drafted(self) -> int:
        """Draft tokens that were proposed."""
        return sum(r.num_drafted for r in self.rounds)

    @property
    def accepted(self) -> int:
        """Draft tokens that the main model agreed with."""
        return sum(r.num_accepted for r in self.rounds)

    @property
    def draft_failures(self) -> int:
        """How often the draft model gave logits that are no distribution, and was left out then."""
        return sum(r.draft_failed for r in self.rounds)

    @property
    def acceptance_rate(self) -> float:
        """Accepted draft tokens per drafted one; 0 where nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else 0.0

    @property
    def main_passes(self) -> int:
        """Rounds, each of which passes once through the main model; the prefill is one of them."""
        return len(self.rounds)

    @property
    def tokens_per_main_pass(self) -> float:
        """Output tokens per round; 1 in plain decoding."""
        return self.generated_tokens / self.main_passes if self.rounds else 0.0

    @property
    def time_to_first_token(self) -> float:
        """Seconds that the prefill took."""
        return self.rounds[0].seconds if self.rounds else 0.0

    @property
    def draft_seconds(self) -> float:
        """Seconds spent drafting; the draft's own reading of the prompt is part of it."""
        return sum(r.draft_seconds for r in self.rounds)

    @property
    def verify_seconds(self) -> float:
        """Seconds spent in passes of the main model after the prefill."""
        return sum(r.verify_seconds for r in self.rounds[1:])

    @property
    def rollback_seconds(self) -> float:
        """Seconds spent rolling back KV caches."""
        return sum(r.rollback_seconds for r in self.rounds)

    @property
    def seconds(self) -> float:
        """Seconds of all rounds; what a reader of the stream does between them does not count."""
        return sum(r.seconds for r in self.rounds)

    @property
    def tokens_per_second(self) -> float:
        """Output tokens per second, prefill included."""
        return self.generated_tokens / self.seconds if self.seconds else 0.0

    @property
    def time_per_output_token(self) -> float:
        """Seconds per token after the first."""
        following = self.generated_tokens - self.rounds[0].num_generated if self.rounds else 0
        return (self.seconds - self.time_to_first_token) / following if following else 0.0

    @property
    def draft_lengths(self) -> list[dict[str, Any]]:
        """The lengths that the policy chose, and why, with the rounds that each was kept.

        Beside them what it led to: tokens drafted, expected to be accepted, and accepted.
        """
        runs = itertools.groupby(self.rounds, lambda r: (r.planned, r.source, r.reason))
        return [
            _describe_run(list(run), {"planned": planned, "source": source, "reason": reason})
            for (planned, source, reason), run in runs
        ]

    def as_dict(self) -> dict[str, Any]:
        """The figures above, for JSON; times in seconds. draft_failures: where there are any."""
        names = (
            "drafted accepted acceptance_rate main_passes tokens_per_main_pass "
            "time_to_first_token time_per_output_token tokens_per_second "
            "seconds draft_seconds verify_seconds rollback_seconds draft_lengths max_sequences "
            "length_limit stop_string"
        )
        figures = {name: getattr(self, name) for name in names.split()}
        if self.draft_failures:
            figures["draft_failures"] = self.draft_failures
        return {**figures, "batch_invariant": self.batch_invariant.as_dict()}


def _describe_run(rounds: list[RoundStats], plan: dict[str, Any]) -> dict[str, Any]:
    """Some rounds that had the same plan."""
    return {
        "rounds": len(rounds),
        **plan,
        "drafted": sum(r.num_drafted for r in rounds),
        "expected_accepted": round(sum(r.expected_accepted for r in rounds), 2),
        "accepted": sum(r.num_accepted for r in rounds),
    }


class Stopwatch:
    """Measures the parts of a round."""

    def __init__(self) -> None:
        self._start = self._lap = perf_counter()

    def lap(self) -> float:
        """Seconds since the last lap."""
        now = perf_counter()
        seconds, self._lap = now - self._lap, now
        return seconds

    def total(self) -> float:
        """Seconds since the beginning."""
        return perf_counter() - self._start
