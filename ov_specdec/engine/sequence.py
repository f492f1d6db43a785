"""A sequence: what was asked, and how far it is: tokens, KV caches, round, state."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from enum import Enum

from ov_specdec.drafters.base import Drafter, Steps
from ov_specdec.engine.output import Output
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.planning.plan import Offers
from ov_specdec.planning.policies import ConstantLength, Policy
from ov_specdec.results.stats import FinishReason, Round
from ov_specdec.runner.cached_sequence import CachedSequence
from ov_specdec.sampling.grammar import Grammar
from ov_specdec.sampling.processors import Follower
from ov_specdec.sampling.samplers import Sampler

MAX_LAG = 16
"""Tokens that a cache may lack before those whose rows are needed, such as a draft model's after
rounds without it. A sequence that lacks more is in its prefill."""


class Cancelled(Exception):  # noqa: N818 - not an error: the caller asked for it
    """A caller cancelled the sequence."""


class State(Enum):
    """The states of a sequence. A preempted one waits again.

    PREFILL: of its prompt, or of many tokens that a draft model's cache lacks.
    """

    NEW = "new"
    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"
    ENDED = "ended"


@dataclass(frozen=True, eq=False)
class Request:
    """What was asked: a prompt, when its output ends, and how it is drafted and chosen.

    prompt: ids. max_length: maximum tokens of prompt and output. sampler: chooses the main model's
    tokens, and knows those that end the output. drafters: propose draft tokens, such as suffix
    matches and a draft model; none for plain decoding. policy: chooses the offer of one of them,
    and draft lengths. grammar: that the output fits, if any: the last of the sampler's processors.
    tenant: whose it is, for a fair share of the batch.
    """

    prompt: list[int]
    max_length: int
    sampler: Sampler = Sampler()
    drafters: tuple[Drafter, ...] = ()
    policy: Policy = ConstantLength(0)
    options: GenerationOptions = field(default_factory=GenerationOptions)
    grammar: Grammar | None = None
    tenant: Hashable = None


class Sequence:
    """A request under way, and how far it is.

    cache: the main model's, which catches up with `tokens` and draft tokens pass by pass. output:
    delivers what comes of it. remember: called with the sequence at its end, however that came; may
    fail it.
    """

    def __init__(
        self,
        request: Request,
        cache: CachedSequence,
        output: Output,
        remember: Callable[["Sequence"], None] = lambda _: None,
    ) -> None:
        self.request, self.cache, self.output, self._remember = request, cache, output, remember
        self.tenant = request.tenant
        self.tokens = [*request.prompt]
        """Prompt and output."""
        self.is_first_round = True
        """Whether it has no output yet."""
        self.state = State.NEW
        self.is_cancelled = False
        self.finish_reason: FinishReason | None = None
        """None until it ends, "stop" after an end-of-sequence token or a stop string, "length" at
        max_length; speculation ends it where plain decoding does."""
        self.error: BaseException | None = None
        """Why it failed, if it did."""
        self.round: Steps[Round] | None = None
        """The current round, a coroutine; None between rounds."""
        self.offers: Offers | None = None
        """Those for which its round waits for a plan."""
        self.fed_cache: CachedSequence | None = None
        """That for which its round waits for a pass."""
        self.num_forced = 0
        """Tokens that the grammar forces in this round, before the drafter's."""
        self.num_drafted = 0
        """The drafter's draft tokens in this round: planned ones until they are proposed."""
        processors: tuple[object, ...] = request.sampler.processors
        self._followers = [each for each in processors if isinstance(each, Follower)]

    @property
    def has_ended(self) -> bool:
        """Whether it is complete, failed or was cancelled."""
        return self.state is State.ENDED

    @property
    def is_ready(self) -> bool:
        """Whether its round can continue: between rounds, or after an interrupted pass."""
        if self.fed_cache is not None:
            return self.fed_cache.num_pending == 0
        return self.offers is None

    @property
    def caches(self) -> tuple[CachedSequence, ...]:
        """Its KV caches, the main model's first."""
        return (self.cache, *[cache for each in self.request.drafters for cache in each.caches])

    @property
    def num_pending(self) -> int:
        """Tokens that the main model's cache lacks, with the round's draft tokens, at least one.

        Rejected draft tokens of the last round may still be cached.
        """
        return max(len(self.tokens) - self.cache.length, 1) + self.num_forced + self.num_drafted

    @property
    def room(self) -> int:
        """Maximum number of draft tokens, besides forced ones and the main model's own token.

        With LongRoPE, all draft tokens of a pass have the same rotary factors.
        """
        num_tokens = len(self.tokens)
        most = min(self.request.max_length - num_tokens, self.cache.room(num_tokens))
        return most - 1 - self.num_forced

    def admit(self) -> None:
        """Start, or resume after `preempt` with the blocks that are still cached."""
        if self.output.begun is not None:
            for cache in self.caches:
                cache.match_prefix()
        self._set_running_state()
        self.output.begin()

    def wait_for(self, what: Offers | CachedSequence | None) -> None:
        """Note what its round waits for; None: the round is complete."""
        self.offers = what if isinstance(what, tuple) else None
        self.fed_cache = what if isinstance(what, CachedSequence) else None
        if what is None:
            self.round, self.num_forced, self.num_drafted = None, 0, 0
        self._set_running_state()

    def _set_running_state(self) -> None:
        cache = self.fed_cache
        lags = self.is_first_round or (cache is not None and cache.num_prefill > MAX_LAG)
        self.state = State.PREFILL if lags else State.DECODE

    def force(self, grammar: Grammar) -> list[int]:
        """The tokens that its grammar forces next, as far as a pass may verify draft tokens."""
        if self.request.options.num_assistant_tokens == 0:
            return []
        forced = grammar.forced()[: max(self.room, 0)]
        self.num_forced = len(forced)
        return forced

    def extend(self, tokens: Iterable[int]) -> list[int]:
        """Append tokens up to the end of the sequence. Returns the appended ones."""
        new: list[int] = []
        max_length, sampler = self.request.max_length, self.request.sampler
        for token in tokens:
            if len(self.tokens) + len(new) >= max_length:
                break
            new.append(token)
            if token in sampler.ends:
                self.finish_reason = "stop"
                break
        self.tokens += new
        self.is_first_round &= not new
        for follower in self._followers:
            follower.follow(new)
        if self.finish_reason is None and len(self.tokens) >= max_length:
            self.finish_reason = "length"
        return new

    def cancel(self) -> None:
        """End it within one pass. From any thread."""
        self.is_cancelled = True

    def preempt(self) -> None:
        """Free its KV caches, which are recomputed later.

        An unfinished draft from hidden states is dropped: those are recomputed too.
        """
        if self.cache.readers and self.fed_cache is not self.cache:
            self.wait_for(None)
        self.state = State.WAITING
        for cache in self.caches:
            cache.free()

    def end(self, error: BaseException | None = None) -> None:
        """Free its KV caches, and mark it as complete, failed or cancelled, unless it has ended."""
        if self.has_ended:
            return
        for cache in self.caches:
            if self.request.options.cache_prompt:
                cache.free()
            else:
                cache.discard()
        self.wait_for(None)
        is_cancelled = isinstance(error, Cancelled)
        self.error = None if is_cancelled else error
        try:
            if is_cancelled:
                self.output.cancel()
            self._remember(self)
        except Exception as failure:  # its reader must get the error
            self.error = self.error or failure
        self.state = State.ENDED
        self.output.end(self.error or error)
