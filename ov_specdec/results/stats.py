"""Statistics of a generation, round by round; all figures derive from these records."""

import itertools
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ov_specdec.sampling.logits import TokenLogprobs

FinishReason = Literal["stop", "tool_calls", "length", "cancelled"]
"""Why an output ended: end-of-sequence token or stop string, such a token after calls of tools, a
length limit, or a cancellation."""

Reason = Literal[
    "", "prefill", "constant", "heuristic", "pays", "loses", "probe", "unmatched", "full"
]
"""Why a round has its draft length; "" without a plan."""

LengthLimit = Literal["kv_cache_size", "max_model_len", "max_new_tokens"]
"""The limits of an output's length: memory, the model's context, or max_new_tokens."""


@dataclass(slots=True)
class RoundStats:
    """One round: tokens drafted, a pass of the main model, rollback. A prefill takes more passes.

    Treat it as immutable. Frozen, it would take 12 instead of 3 us for each sequence and step.

    num_accepted: accepted draft tokens within the text, which a stop string may end among them.
    num_generated: tokens that the round added to the text: num_forced + num_accepted + 1, unless
    the text ended among them.
    seconds: of the whole round, with more than its three parts.
    pass_tokens, num_passes: tokens fed to the main model, and its passes for them.
    source: of the draft tokens.
    planned, reason: the planned draft length, and why, in one word.
    confidences: of each draft token, if the source knows them.
    match_confidence: of the match that was drafted, if any.
    cached_tokens: tokens in the main model's KV cache before.
    draft_pass_tokens: tokens fed to the draft model.
    expected_accepted: expected number of accepted draft tokens.
    expected_seconds: of the main model's pass without a change of its size, against
    `verify_seconds`; 0: unknown.
    declined: a match that the policy rejected, by source and confidence, and whether its first
    draft token was right.
    num_sequences: sequences in the main model's pass; seconds are of the whole pass.
    draft_failed: the draft model gave no distribution, and was disabled for this sequence.
    num_forced: tokens before the drafter's that a grammar forced; no draft tokens by count.
    """

    num_drafted: int
    num_accepted: int
    num_generated: int
    draft_seconds: float
    verify_seconds: float
    rollback_seconds: float
    seconds: float
    pass_tokens: int = 0
    num_passes: int = 1
    source: str = ""
    planned: int = 0
    reason: Reason = ""
    confidences: tuple[float, ...] = ()
    match_confidence: float | None = None
    cached_tokens: int = 0
    draft_pass_tokens: int = 0
    expected_accepted: float = 0.0
    expected_seconds: float = 0.0
    declined: tuple[str, float, bool] | None = None
    num_sequences: int = 1
    draft_failed: bool = False
    num_forced: int = 0


class PassStats(NamedTuple):
    """One pass of a model over one or several sequences.

    num_tokens: fed tokens, padding included. num_read: the sum over them of the tokens that were
    cached before. num_prefill: fed tokens of prefills. seconds: with the sampling from its logits.
    """

    num_tokens: int
    num_read: int
    num_prefill: int
    seconds: float


class Round(NamedTuple):
    """The tokens that one pass of the main model added to the sequence.

    tokens: the new tokens. num_from_draft: the number of forced tokens and accepted draft tokens,
    which come first; the token after them, if any, is the main model's own. draft_tokens: all of
    these. logprobs: of each new token, if requested. prompt_logprobs: of each prompt token, in the
    first round.
    """

    tokens: list[int]
    num_from_draft: int
    draft_tokens: list[int]
    stats: RoundStats
    logprobs: list[TokenLogprobs]
    prompt_logprobs: list[TokenLogprobs]


@dataclass(frozen=True)
class BatchInvariance:
    """Whether a token's logits are bitwise the same in any pass, and the reason.

    is_on: passes of the main model have the form for it. is_checked: a check passed on this
    machine, with this model and these settings.
    """

    is_on: bool
    reason: str
    is_checked: bool = False

    @property
    def is_verified(self) -> bool:
        """Whether the check has passed."""
        return self.is_on and self.is_checked

    def as_dict(self) -> dict[str, Any]:
        """The fields for JSON."""
        return {"is_on": self.is_on, "is_checked": self.is_checked, "reason": self.reason}

    def __str__(self) -> str:
        return f"{'on' if self.is_on else 'off'} ({self.reason})"


NOT_INVARIANT = BatchInvariance(False, "an encoder-decoder model")
"""For models whose passes have only one form."""


@dataclass(repr=False)
class GenerationStats:
    """The statistics of one generation. Its first round is the prefill.

    batch_invariant: whether its text depends only on prompt, options and model. max_sequences:
    maximum concurrent sequences in the KV caches; None: what memory allows. length_limit: the limit
    that ended it, if it ended with "length". stop_string: the stop string that ended it, if any.
    outside_draft_vocabulary: tokens of the output that `draft_vocabulary` keeps from being drafted.
    """

    prompt_tokens: int
    rounds: list[RoundStats] = field(default_factory=list)
    batch_invariant: BatchInvariance = NOT_INVARIANT
    max_sequences: int | None = None
    length_limit: LengthLimit = "max_new_tokens"
    stop_string: str | None = None
    outside_draft_vocabulary: int = 0

    def __repr__(self) -> str:
        return (
            f"GenerationStats({self.generated_tokens} tokens in {self.seconds:.2f} s, "
            f"{self.tokens_per_second:.0f} tokens/s, {self.acceptance_rate:.0%} of {self.drafted} "
            f"draft tokens accepted, {self.tokens_per_main_pass:.1f} tokens a pass)"
        )

    @property
    def cached_tokens(self) -> int:
        """Cached tokens of the prompt, which were not prefilled again."""
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
        """Accepted draft tokens within the text."""
        return sum(r.num_accepted for r in self.rounds)

    @property
    def draft_failures(self) -> int:
        """How often the draft model gave logits without a distribution, and was disabled."""
        return sum(r.draft_failed for r in self.rounds)

    @property
    def forced(self) -> int:
        """Tokens of the output that a grammar forced, and that needed no pass of their own."""
        return sum(r.num_forced for r in self.rounds)

    @property
    def acceptance_rate(self) -> float:
        """Fraction of accepted draft tokens; 0 if nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else 0.0

    @property
    def main_passes(self) -> int:
        """Passes of the main model, with those of the prefill."""
        return sum(r.num_passes for r in self.rounds)

    @property
    def tokens_per_main_pass(self) -> float:
        """Output tokens per round, passes over the prompt left out; 1 in plain decoding."""
        return self.generated_tokens / len(self.rounds) if self.rounds else 0.0

    @property
    def time_to_first_token(self) -> float:
        """Seconds that the prefill took."""
        return self.rounds[0].seconds if self.rounds else 0.0

    @property
    def draft_seconds(self) -> float:
        """Seconds of drafting, with the draft model's prefill, and shared with other sequences."""
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
        """Seconds of all rounds, without the reader's time between them."""
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
        """The chosen draft lengths in order, each with its reason and number of rounds.

        Each has counts of draft tokens: drafted, expected to be accepted, and accepted; and the
        seconds of the main model's passes, expected by the planner and measured.
        """
        grouped = itertools.groupby(self.rounds, lambda r: (r.planned, r.source, r.reason))
        return [
            {
                "rounds": len(run),
                **{name: getattr(run[0], name) for name in ("planned", "source", "reason")},
                "drafted": sum(r.num_drafted for r in run),
                "expected_accepted": round(sum(r.expected_accepted for r in run), 2),
                "accepted": sum(r.num_accepted for r in run),
                "expected_seconds": round(sum(r.expected_seconds for r in run), 6),
                "verify_seconds": round(sum(r.verify_seconds for r in run), 6),
            }
            for run in (list(each) for _, each in grouped)
        ]

    def as_dict(self) -> dict[str, Any]:
        """The figures above, for JSON; times in seconds. Some counts: only if not 0."""
        names = (
            "drafted accepted acceptance_rate main_passes tokens_per_main_pass "
            "time_to_first_token time_per_output_token tokens_per_second "
            "seconds draft_seconds verify_seconds rollback_seconds draft_lengths max_sequences "
            "length_limit stop_string"
        )
        figures = {name: getattr(self, name) for name in names.split()}
        rare = {
            "draft_failures": self.draft_failures,
            "grammar": self.forced,
            "outside_draft_vocabulary": self.outside_draft_vocabulary,
        }
        figures.update((name, number) for name, number in rare.items() if number)
        return {**figures, "batch_invariant": self.batch_invariant.as_dict()}
