"""One prompt and its output: ids, limits, KV caches, and its state in the scheduler."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from time import monotonic
from typing import Any

from ov_specdec.drafters.base import Drafter, Steps
from ov_specdec.engine.output import Output
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.planning.plan import Offers
from ov_specdec.planning.policies import ConstantLength, Policy
from ov_specdec.results.stats import FinishReason, GenerationStats, Round
from ov_specdec.runner.base import Runner
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


@dataclass(eq=False)
class Sequence:
    """Prompt and output, when to end, and the KV caches that hold them."""

    tokens: list[int]
    """Prompt and output, owned by the sequence alone."""
    max_length: int
    """Maximum length of both together."""
    cache: CachedSequence
    """The main model's."""
    sampler: Sampler
    """Chooses the main model's tokens, and knows those that end it."""
    drafters: tuple[Drafter, ...] = ()
    """Propose draft tokens, such as suffix matches and a draft model; none for plain decoding."""
    policy: Policy = ConstantLength(0)
    """Chooses the offer of one of them, and draft lengths."""
    options: GenerationOptions = field(default_factory=GenerationOptions)
    output: Output | None = None
    """Turns rounds into chunks; None: the reader gets the rounds."""
    grammar: Grammar | None = None
    """That its output fits, if any: the last of the sampler's processors."""
    receive: Callable[[list[Any]], None] | None = None
    """Gets the chunks instead of `unread`, but no last one of a cancelled generation."""
    on_admit: Callable[[], None] | None = None
    """Called once when it first runs, in the stepping thread."""
    remember: Callable[["Sequence"], None] = lambda _: None
    """Called with it at its end, however that came; may fail it."""
    on_end: Callable[[BaseException | None], None] | None = None
    """Called once at its end, in the stepping thread, or else in the thread that cancels it."""
    tenant: Hashable = None
    """Whose it is, for a fair share of the batch."""
    finish_reason: FinishReason | None = None
    """None until it ends, "stop" after an end-of-sequence token or a stop string, "length" at
    max_length; speculation ends it where plain decoding does."""
    state: State = field(default=State.NEW, init=False)
    is_cancelled: bool = field(default=False, init=False)
    num_prompt_tokens: int = field(init=False)
    round: Steps[Round] | None = field(default=None, init=False)
    """The current round, a coroutine; None between rounds."""
    offers: Offers | None = field(default=None, init=False)
    """Those for which its round waits for a plan."""
    fed_cache: CachedSequence | None = field(default=None, init=False)
    """That for which its round waits for a pass."""
    num_planned: int = field(default=0, init=False)
    """Draft tokens of its plan, until they are proposed."""
    num_forced: int = field(default=0, init=False)
    """Tokens that the grammar forces in this round, before the drafter's."""
    unread: deque[Any] = field(default_factory=deque, init=False)
    error: BaseException | None = field(default=None, init=False)
    """Why it failed, if it did."""
    begun: float | None = field(default=None, init=False)
    first_token: float | None = field(default=None, init=False)
    latest: float | None = field(default=None, init=False)
    """When it was admitted, and had its first and latest output, by `time.monotonic`."""

    def __post_init__(self) -> None:
        self.num_prompt_tokens = len(self.tokens)
        processors: tuple[object, ...] = self.sampler.processors
        self._followers = [each for each in processors if isinstance(each, Follower)]

    @property
    def is_first_round(self) -> bool:
        """Whether it has no output yet."""
        return len(self.tokens) == self.num_prompt_tokens

    @property
    def has_ended(self) -> bool:
        """Whether it is complete, failed or was cancelled."""
        return self.state is State.ENDED

    @property
    def is_preempted(self) -> bool:
        """Whether it waits after it ran."""
        return self.state is State.WAITING and self.begun is not None

    @property
    def is_ready(self) -> bool:
        """Whether its round can continue: between rounds, or after an interrupted pass."""
        if self.fed_cache is not None:
            return self.fed_cache.num_pending == 0
        return self.offers is None

    @property
    def caches(self) -> tuple[CachedSequence, ...]:
        """Its KV caches, the main model's first."""
        return (self.cache, *[cache for drafter in self.drafters for cache in drafter.caches])

    @property
    def room(self) -> int:
        """Maximum number of draft tokens, besides forced ones and the main model's own token.

        With LongRoPE, all draft tokens of a pass have the same rotary factors.
        """
        num_tokens = len(self.tokens)
        most = min(self.max_length - num_tokens, self.cache.room(num_tokens))
        return most - 1 - self.num_forced

    @property
    def num_uncached(self) -> int:
        """Tokens to feed to the main model before its next token, at least one."""
        return max(len(self.tokens) - self.cache.length, 1)

    @property
    def num_in_pass(self) -> int:
        """Tokens that it adds to the main model's next pass, as far as decided."""
        if self.fed_cache is self.cache:
            return self.cache.num_pending
        return 1 + self.num_forced + self.num_planned

    def num_pending(self, runner: Runner) -> int:
        """Tokens to feed to this model."""
        return sum(cache.num_pending for cache in self.caches if cache.runner is runner)

    @property
    def stats(self) -> GenerationStats:
        """The statistics of its output."""
        return GenerationStats(self.num_prompt_tokens) if self.output is None else self.output.stats

    def admit(self) -> None:
        """Start, or resume after `preempt` with the blocks that are still cached."""
        if self.is_preempted:
            for cache in self.caches:
                cache.match_prefix()
        self.begun = self.begun or monotonic()
        on_admit, self.on_admit = self.on_admit, None
        if on_admit is not None:
            on_admit()
        self._set_running_state()

    def wait_for(self, what: Offers | CachedSequence | None) -> None:
        """Note what its round waits for; None: the round is complete."""
        self.offers = what if isinstance(what, tuple) else None
        self.fed_cache = what if isinstance(what, CachedSequence) else None
        if what is None:
            self.round, self.num_planned, self.num_forced = None, 0, 0
        self._set_running_state()

    def _set_running_state(self) -> None:
        cache = self.fed_cache
        is_lagging = cache is not None and cache.num_prefill > MAX_LAG
        self.state = State.PREFILL if self.is_first_round or is_lagging else State.DECODE

    def force(self) -> list[int]:
        """The tokens that the grammar forces next, as far as a pass may verify draft tokens."""
        if self.grammar is None or self.options.num_assistant_tokens == 0:
            return []
        forced = self.grammar.forced()[: max(self.room, 0)]
        self.num_forced = len(forced)
        return forced

    def extend(self, tokens: Iterable[int]) -> list[int]:
        """Append tokens up to the end of the sequence. Returns the appended ones."""
        new: list[int] = []
        for token in tokens:
            if len(self.tokens) + len(new) >= self.max_length:
                break
            new.append(token)
            if token in self.sampler.ends:
                self.finish_reason = "stop"
                break
        self.tokens += new
        for follower in self._followers:
            follower.follow(new)
        if self.finish_reason is None and len(self.tokens) >= self.max_length:
            self.finish_reason = "length"
        return new

    def publish(self, round_: Round) -> None:
        """Pass a round on to the reader; a stop string in it ends the sequence."""
        chunks: list[Any] = [round_]
        if self.output is not None:
            chunks = self.output.add(round_, self.finish_reason)
            if self.output.stats.stop_string is not None:
                self.finish_reason = "stop"
        (self.receive or self.unread.extend)(chunks)
        self.latest = monotonic()
        self.first_token = self.first_token or self.latest

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
            if self.options.cache_prompt:
                cache.free()
            else:
                cache.discard()
        self.wait_for(None)
        is_cancelled = isinstance(error, Cancelled)
        self.error = None if is_cancelled else error
        try:
            if is_cancelled and self.output is not None:
                last = self.output.cancelled()
                if self.receive is None:
                    self.unread.append(last)
            self.remember(self)
        except Exception as failure:  # its reader must get the error
            self.error = self.error or failure
        self.state, self.receive = State.ENDED, None
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end(self.error or error)
