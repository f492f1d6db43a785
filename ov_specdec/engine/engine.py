"""`Engine`: runs sequences together, step by step; only it runs passes meanwhile."""

from collections.abc import Mapping
from operator import itemgetter
from time import perf_counter
from types import MappingProxyType

from ov_specdec.engine.round import next_round
from ov_specdec.engine.scheduler import Scheduler, Share, StepLimits
from ov_specdec.engine.sequence import Sequence, State
from ov_specdec.engine.static_shapes import StaticShapes
from ov_specdec.errors import CacheFullError
from ov_specdec.planning.costs import NOMINAL, Costs, Role
from ov_specdec.planning.plan import FULL, Estimate, Plan
from ov_specdec.planning.planner import Planner, StepPlan
from ov_specdec.results.stats import PassStats, Round
from ov_specdec.runner.base import Runner, Span
from ov_specdec.runner.cached_sequence import CachedSequence, forward

MAX_OWED = 0.5
"""Seconds that slow masks may take beyond passes, so that steps take at most twice as long."""


class Engine:
    """Two models, and the sequences that share their passes. Not thread-safe: see `EngineLoop`.

    main, draft: the models. costs: of their passes, which teach them.
    shapes: the models' static shapes, compiled while the engine runs.
    """

    def __init__(
        self,
        main: Runner,
        draft: Runner | None = None,
        limits: StepLimits = StepLimits(),
        costs: Costs = Costs(NOMINAL),
        shapes: Mapping[Role, StaticShapes] = MappingProxyType({}),
    ) -> None:
        self._main = main
        self._draft = draft
        self.shapes = shapes
        self.scheduler = Scheduler(main, draft, limits)
        self._costs = costs
        self._planner = Planner(costs)
        self._step_plan = StepPlan([])
        self._owed = 0.0
        """Seconds by which slow masks of grammars have exceeded passes; below 0 within a step."""

    def step(self) -> None:
        """One round of drafting and verification for all running sequences.

        Passes of the draft model, each over all sequences that still draft, then one pass of the
        main model, which also prefills a chunk of each waiting prompt.
        """
        for sequence in self.scheduler.schedule():
            if sequence.is_ready:
                self._resume(sequence)
        self._plan()
        drafts = self._run_drafts()
        main = self._forward(self._main)
        self._limit_masks()
        self._learn({"draft": drafts, "main": [main] if main else []})

    def cancel_all(self) -> None:
        """End all sequences within one pass. From any thread."""
        for sequence in (*self.scheduler.running, *self.scheduler.waiting):
            sequence.cancel()

    def fail_all(self, error: Exception) -> None:
        """End all running sequences with this error, or if there are none, all waiting ones."""
        self.scheduler.sweep()
        for sequence in self.scheduler.running or self.scheduler.waiting:
            sequence.end(error)

    def _resume(self, sequence: Sequence, plan: Plan | None = None) -> None:
        """Run a sequence's round until it waits for a plan or a pass, or to its end."""
        if sequence.round is None:
            sequence.round = next_round(sequence)
        if plan is not None:
            sequence.num_drafted = plan.length
        try:
            sequence.wait_for(sequence.round.send(plan))
        except StopIteration as done:
            self._complete(sequence, done.value)
        except BaseException as error:
            sequence.end(error)
            if not isinstance(error, Exception):
                raise

    def _limit_masks(self) -> None:
        """End the sequence with the slowest masks, once those of all have taken too long."""
        running = self.scheduler.running
        masked = [(g.take_seconds(), s, g) for s in running if (g := s.request.grammar) is not None]
        self._owed = max(self._owed + sum(map(itemgetter(0), masked)), 0.0)
        if self._owed > MAX_OWED:
            self._owed = 0.0
            _, slowest, grammar = max(masked, key=itemgetter(0))
            if not slowest.has_ended:
                slowest.end(grammar.too_slow())

    def _complete(self, sequence: Sequence, round_: Round) -> None:
        """Learn from a complete round and publish it; the sequence may end with it."""
        sequence.wait_for(None)
        try:
            sequence.request.policy.update(round_.stats)
            reason = sequence.output.publish(round_, sequence.finish_reason)
            sequence.finish_reason = reason
        except Exception as error:
            sequence.end(error)
        if sequence.finish_reason is not None:
            sequence.end()

    def _plan(self) -> None:
        """Plan draft lengths: first those that are given, then all others together."""
        running, self._step_plan = self.scheduler.running, StepPlan([])
        planned, estimates = list[Sequence](), list[Estimate]()
        for sequence in running:
            if (offers := sequence.offers) is None:
                continue
            answer = sequence.request.policy.answer(offers)
            if isinstance(answer, Plan):
                self._resume(sequence, answer.within(sequence.room))
            elif sequence.room < 1:
                self._resume(sequence, FULL)
            else:
                planned.append(sequence)
                estimates.append(answer)
        # Sequences with offers decode. Without any, the planner still chooses the size to pad to.
        decoding = [s for s in running if s.state is State.DECODE and s.request.policy.is_planned]
        if not decoding:
            return
        self._step_plan = self._planner.plan(estimates, self.scheduler.load)
        for sequence, plan in zip(planned, self._step_plan.plans, strict=True):
            self._resume(sequence, plan.within(sequence.room))

    def _run_drafts(self) -> list[PassStats]:
        passes, num_prefilled = list[PassStats](), 0
        while self._draft is not None and (done := self._forward(self._draft, num_prefilled)):
            passes.append(done)
            num_prefilled += done.num_prefill
        return passes

    def _forward(self, model: Runner, num_prefilled: int = 0) -> PassStats | None:
        """One pass of a model over all sequences that wait for it; None if there are none.

        num_prefilled: prompt tokens that it prefilled in this step.
        """
        begin = perf_counter()
        # Once, or again after each preemption.
        while batch := self.scheduler.batch(model, num_prefilled):
            num_tokens = num_read = num_prefill = 0
            caches, spans = list[CachedSequence](), list[Span]()
            try:
                for share in batch:
                    caches.append(share.cache)
                    spans.append(share.cache.span(share.limit))
                    size, length = len(spans[-1].tokens), spans[-1].slot.length
                    num_tokens, num_read = num_tokens + size, num_read + size * length
                    # A first pass runs an encoder too, where there is one.
                    if share.sequence.state is State.PREFILL or not length:
                        num_prefill += size
                padding = self._padding(model, batch, num_tokens)
                forward(caches, spans, padding)
                self._owed -= perf_counter() - begin
            except CacheFullError as error:
                self.scheduler.preempt(error)
                continue
            except Exception as error:
                for share in batch:
                    share.sequence.end(error)
                return None
            for share in batch:
                self._resume(share.sequence)
            for span in padding:
                num_tokens += len(span.tokens)
            return PassStats(num_tokens, num_read, num_prefill, perf_counter() - begin)
        return None

    def _padding(self, model: Runner, batch: list[Share], num_tokens: int) -> list[Span]:
        """Spare rows of a pass over so many tokens.

        If the size of a pass may change a text, only those with planned draft lengths are padded.
        Passes of a draft model have its static shapes' sizes in any case, unless they prefill.
        """
        decoding = [each.sequence for each in batch if each.sequence.state is State.DECODE]
        may_pad = self._main.is_verified or any(s.request.policy.is_planned for s in decoding)
        if model is self._main:
            return model.padding(num_tokens, self._step_plan.size) if decoding and may_pad else []
        rows = self._costs.curve.draft_rows if may_pad else 1
        planned = rows if num_tokens < rows else 0
        return model.padding(num_tokens, planned) if len(decoding) == len(batch) else []

    def _learn(self, passes: Mapping[Role, list[PassStats]]) -> None:
        """Let costs and static shapes follow the passes of this step."""
        seconds = sum([done.seconds for own in passes.values() for done in own])
        # In the order in which they ran.
        models: dict[Role, Runner | None] = {"draft": self._draft, "main": self._main}
        for role, model in models.items():
            if model is not None:
                self._costs.learn(role, passes[role], model.static_shapes)
        goes_on = [s for s in self.scheduler.running if s.state is not State.ENDED]
        for role, shapes in self.shapes.items():
            wanted = self._step_plan.wanted if role == "main" else 0
            shapes.learn(passes[role], wanted, seconds, is_idle=not goes_on)
