"""Which sequences run in the next step, and with how many tokens.

Source: continuous batching, Yu et al. (Orca, OSDI 2022); reading prompts in chunks beside decoding,
Agrawal et al. (Sarathi-Serve, arXiv 2403.02310).
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ov_specdec.cache.sequence import PREFILL_CHUNK, CachedSequence, run
from ov_specdec.cache.session import Runner
from ov_specdec.costs import GRID, Costs
from ov_specdec.errors import CacheFullError
from ov_specdec.scheduling.request import Cancelled, Request
from ov_specdec.speculation.budget import Budget, Load
from ov_specdec.speculation.draft_length import Ask, Bid
from ov_specdec.stats import PassStats, StepStats, Stopwatch

DRAFT_PREFILL = 4
"""Tokens of prompts that a draft model's pass reads, for one of the main model's: its tokens cost a
fourth at most, or it would not pay. Not more than `PREFILL_CHUNK`."""

SPARE = 64
"""Tokens that a sequence needs room for beside its own when it is admitted: a few rounds."""


@dataclass(frozen=True)
class Limits:
    """How much runs at a time.

    max_batch_size: sequences. max_prefill_tokens_per_step: tokens that a pass reads while others
    are being answered, for each prompt that is to be read.

    48: while 1,000 tokens are read beside four answers, the 95th percentile of a step of the
    embedded pair is 1.8 to 3.4 times the median of before (32: 1.9 to 3.0, 64: 2.2 to 4.9). With
    mixed prompts, four at a time, 48 has most tokens per second: 32 has 0.87 of them, 64 0.97, 128
    0.96 (medians of four loads). Where several prompts wait, to leave them waiting would cost more
    than the answers gain.
    """

    max_batch_size: int = 16
    max_prefill_tokens_per_step: int = 48


class Scheduler:
    """Runs requests together, first come first served, step by step.

    A step is one round of every sequence that is not reading its prompt: the draft model's passes,
    each over all sequences that still draft, then one pass of the main model, which also holds a
    chunk of the prompts that are being read. When the memory for KV caches is used up, the newest
    request gives its own back and waits; what it has read and drafted is fed again later, so its
    output is the same. Not to be used from two threads at once: see `Turns`.

    main, draft: the models. costs: of their passes; told of each step that read no prompt.
    """

    def __init__(
        self,
        main: Runner,
        draft: Runner | None,
        limits: Limits,
        costs: Costs,
    ) -> None:
        self._main = main
        self._draft = draft
        self._limits = limits
        self._budget = Budget(costs)
        self._waiting: deque[Request[Any]] = deque()
        # In the order of their arrival, but for those that were suspended.
        self._running: list[Request[Any]] = []
        self._is_shared = False
        """Whether candidates of this step were planned together."""

    @property
    def is_idle(self) -> bool:
        """Whether no request holds memory."""
        return not self._running

    @property
    def num_running(self) -> int:
        """Requests that hold memory."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Requests that wait for memory, or for their reader."""
        return len(self._waiting)

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._running) or any(request.may_go_on for request in self._waiting)

    def submit(self, request: Request[Any]) -> None:
        """Have a request run as soon as there is room."""
        request.is_submitted = True
        self._waiting.append(request)

    def cancel_all(self) -> None:
        """End all requests within one pass. From any thread."""
        for request in (*self._running, *self._waiting):
            request.cancel()

    def fail_all(self, error: Exception) -> None:
        """End all requests that hold memory, or else those that wait, with this error."""
        for request in self._running or self._waiting:
            request.end(error)
        self.sweep()

    def step(self) -> None:
        """One round of drafting and verifying, for all that run."""
        self.sweep()
        if self._waiting:
            self._admit()
        for request in self._running:
            if request.is_ready:
                request.resume()
        self._answer()
        drafts = self._run_drafts()
        main = self._run_pass(self._main)
        self.sweep()
        if main is not None and main.num_tokens not in self._main.fixed_sizes:
            self._budget.ran(main.num_tokens)
        if main is not None and not any(done.num_read for done in (*drafts, main)):
            self._budget.costs.learn(StepStats(main, tuple(drafts)))

    def sweep(self) -> None:
        """Let go of requests that have ended, were cancelled, or have to wait for their readers."""
        if not any(request.is_leaving for request in (*self._running, *self._waiting)):
            return
        for request in (*self._running, *self._waiting):
            if request.is_cancelled and not request.has_ended:
                request.end(Cancelled())
        self._running = [r for r in self._running if not r.has_ended]
        self._waiting = deque(r for r in self._waiting if not r.has_ended)
        for request in [r for r in self._running if r.is_far_ahead]:
            self._suspend(request)

    def _admit(self) -> None:
        """Let those run that there is room for, in the order of their arrival."""
        limits = [self._limits.max_batch_size, *(m.max_sequences for m in self._models)]
        most = min(limit for limit in limits if limit is not None)
        for request in [r for r in self._waiting if r.may_go_on]:
            if len(self._running) >= most or not self._has_room(request):
                return
            self._waiting.remove(request)
            request.admit(is_alone=not self._running)
            if not request.has_ended:
                self._running.append(request)

    @property
    def _models(self) -> list[Runner]:
        return [self._main] if self._draft is None else [self._main, self._draft]

    def _has_room(self, request: Request[Any]) -> bool:
        """Whether no running request is likely to be suspended for this one."""
        for model in self._models:
            if self._running and model.num_free is not None:
                pending = sum(other.num_pending(model) for other in self._running)
                needed = max(request.num_tokens, request.num_pending(model))
                if model.num_free - pending < needed + SPARE:
                    return False
        return True

    def _answer(self) -> None:
        """Tell drafters how far they may draft.

        Those that bid for their candidates are planned together, once everybody else is.
        """
        self._is_shared = False
        while asking := [r for r in self._running if isinstance(r.waits_for, Ask)]:
            bidding: list[tuple[Request[Any], Bid]] = []
            for request in asking:
                bid = request.bid() if len(self._running) > 1 else None
                if bid is None:
                    request.resume(request.own_plan())
                else:
                    bidding.append((request, bid))
            if len(bidding) < len(asking):
                continue
            self._is_shared = True
            plans = self._budget.share([bid for _, bid in bidding], self._load())
            for (request, _), plan in zip(bidding, plans, strict=True):
                request.resume(plan.within(request.speculating.room))

    @property
    def _answered(self) -> list[Request[Any]]:
        """Those whose prompts have been read."""
        return [request for request in self._running if not request.is_reading]

    def _load(self) -> Load:
        """What the next pass of the main model holds, whatever is drafted."""
        answered = self._answered
        unread = sum(r.num_to_verify for r in self._running if r.is_reading)
        return Load(
            len(self._running),
            len(answered),
            sum(request.num_to_verify for request in answered),
            min(unread, self._main_prefill_budget()),
            sum(request.num_tokens for request in self._running),
        )

    def _run_drafts(self) -> list[PassStats]:
        """One pass of the draft model after the other, until nobody waits for one."""
        passes: list[PassStats] = []
        num_read = 0
        while self._draft is not None and (done := self._run_pass(self._draft, num_read)):
            num_read += done.num_read
            passes.append(done)
        return passes

    def _prefill_budget(self, model: Runner) -> int:
        """Tokens of prompts that a model may read in a step."""
        most = self._main_prefill_budget()
        return most if model is self._main else min(DRAFT_PREFILL * most, PREFILL_CHUNK)

    def _main_prefill_budget(self) -> int:
        """Those of the main model: few where somebody would have to wait for its pass.

        With what is verified beside them they fill one of the usual sizes, where that is possible.
        """
        answered = self._answered
        if not answered:
            return PREFILL_CHUNK
        num_reading = len(self._running) - len(answered)
        most = min(self._limits.max_prefill_tokens_per_step * num_reading, PREFILL_CHUNK)
        verified = sum(request.num_to_verify for request in answered)
        size = max(size for size in GRID if size <= verified + most)
        return size - verified if size > verified else most

    def _run_pass(self, model: Runner, num_read: int = 0) -> PassStats | None:
        """One pass of a model over all that wait for it; None where nobody does.

        num_read: tokens of prompts that it has read in this step.
        """
        watch = Stopwatch()
        while shares := self._share(model, num_read):
            caches = [share.cache for share in shares]
            num_cached = sum(cache.length for cache in caches)
            padded, padding = self._padding(model, shares)
            try:
                spans = [
                    share.cache.span(share.limit, padding if share is padded else 0)
                    for share in shares
                ]
                run(caches, spans)
            except CacheFullError as error:
                self._preempt(error)
                continue
            except Exception as error:
                for share in shares:
                    share.request.end(error)
                return None
            for share in shares:
                share.request.resume()
            sizes = [len(span.tokens) for span in spans]
            read = sum(n for n, share in zip(sizes, shares, strict=True) if share.is_reading)
            return PassStats(sum(sizes), num_cached, len(sizes), read, watch.total())
        return None

    def _share(self, model: Runner, num_read: int) -> list["Share"]:
        """Who takes part in the next pass of a model: all that wait for it, if there is room."""
        shares, budget = list[Share](), None
        for request in self._running:
            cache = request.waits_for
            if not isinstance(cache, CachedSequence) or cache.runner is not model:
                continue
            if request.is_cancelled:
                continue
            limit, is_reading = cache.num_pending, request.is_reading
            if is_reading:
                if budget is None:
                    budget = self._prefill_budget(model)
                limit = min(limit, budget - num_read)
                num_read += max(limit, 0)
            if limit > 0:
                shares.append(Share(request, cache, limit, is_reading))
        return shares

    def _padding(self, model: Runner, shares: Sequence["Share"]) -> tuple["Share | None", int]:
        """Tokens to fill the pass up with, so that its size is one of a few, and after whose.

        A prompt of which a part is read cannot be followed by others.
        """
        answered = [share for share in shares if not share.is_reading]
        if not answered or (model is self._draft and len(answered) < len(shares)):
            return None, 0
        num_tokens = sum(share.limit for share in shares)
        if model is self._draft:
            fixed = [size for size in model.fixed_sizes if size >= num_tokens]
            size = min(fixed, default=num_tokens)
        elif len(shares) == 1:
            size = answered[0].request.speculating.policy.pass_size(num_tokens)
        elif self._is_shared:
            size = self._budget.pass_size(num_tokens, self._load())
        else:
            return None, 0
        return answered[-1], size - num_tokens

    def _preempt(self, error: CacheFullError) -> None:
        """Have the newest request give its memory back and wait; the error is for one alone."""
        newest = self._running[-1]
        if len(self._running) > 1:
            self._suspend(newest)
        else:
            self._running.clear()
            newest.end(error)

    def _suspend(self, request: Request[Any]) -> None:
        request.suspend()
        self._running.remove(request)
        self._waiting.appendleft(request)


class Share(NamedTuple):
    """A request's part in a pass: at most `limit` of the tokens that its cache lacks."""

    request: Request[Any]
    cache: CachedSequence
    limit: int
    is_reading: bool
