"""`Engine`: runs sequences together, step by step; only it runs passes meanwhile."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from ov_specdec.engine.output import Round
from ov_specdec.engine.round import decode
from ov_specdec.engine.scheduler import Limits, Scheduler, Share
from ov_specdec.engine.sequence import Sequence
from ov_specdec.engine.static_shapes import StaticShapes
from ov_specdec.errors import CacheFullError
from ov_specdec.planning.costs import NOMINAL, Costs, FixedCurve, Role
from ov_specdec.planning.draft_length import WAIT, Bid, Plan, PlanRequest
from ov_specdec.planning.planner import Planner
from ov_specdec.runner.base import Runner
from ov_specdec.runner.cached_sequence import forward
from ov_specdec.stats import PassStats, StepStats, Stopwatch


class Engine:
    """Two models, and the sequences that share their passes. Not thread-safe: see `EngineLoop`.

    main, draft: the models. costs: their cost curves, updated after each step without prefill.
    shapes: the models' static shapes, compiled while the engine runs.
    """

    def __init__(
        self,
        main: Runner,
        draft: Runner | None = None,
        limits: Limits = Limits(),
        costs: Costs = FixedCurve(NOMINAL),
        shapes: Mapping[Role, StaticShapes] = MappingProxyType({}),
    ) -> None:
        self._main = main
        self._draft = draft
        self.shapes = shapes
        self.scheduler = Scheduler(main, draft, limits)
        self._planner = Planner(costs)

    def add_request(self, sequence: Sequence) -> None:
        """Queue a sequence."""
        self.scheduler.add(sequence)

    def step(self) -> None:
        """One round of drafting and verification for all running sequences.

        Passes of the draft model, each over all sequences that still draft, then one pass of the
        main model, which also prefills a chunk of each waiting prompt.
        """
        self.scheduler.schedule()
        for sequence in self.scheduler.running:
            if sequence.is_ready:
                self._resume(sequence)
        self._plan()
        drafts = self._run_drafts()
        main = self._forward(self._main)
        self.scheduler.sweep()
        self._learn(drafts, main)

    def run(self, sequence: Sequence) -> Iterator[Round]:
        """Run a sequence to its end, and yield its rounds; raises the error that ends it."""
        self.add_request(sequence)
        while not sequence.has_ended:
            self.step()
            while sequence.unread:
                yield sequence.unread.popleft()
        if sequence.error is not None:
            raise sequence.error

    def cancel_all(self) -> None:
        """End all sequences within one pass. From any thread."""
        for sequence in (*self.scheduler.running, *self.scheduler.waiting):
            sequence.cancel()

    def fail_all(self, error: Exception) -> None:
        """End all running sequences with this error, or if there are none, all waiting ones."""
        for sequence in self.scheduler.running or self.scheduler.waiting:
            sequence.end(error)
        self.scheduler.sweep()

    def _resume(self, sequence: Sequence, plan: Plan | None = None) -> None:
        """Run a sequence's coroutine until it waits again, or to the end of its round."""
        if sequence.present_round is None:
            sequence.present_round = decode(sequence)
        if plan is not None:
            sequence.num_planned = plan.length
        try:
            sequence.waits_for = sequence.present_round.send(plan)
        except StopIteration as done:
            sequence.present_round = sequence.waits_for = None
            sequence.num_planned = 0
            self._publish(sequence, done.value)
        except BaseException as error:
            sequence.end(error)
            if not isinstance(error, Exception):
                raise

    def _publish(self, sequence: Sequence, round_: Round) -> None:
        try:
            sequence.unread.extend(sequence.publish(sequence, round_))
        except Exception as error:
            sequence.end(error)
        if sequence.finish_reason is not None:
            sequence.end()

    def _plan(self) -> None:
        """Plan draft lengths: first those without bids, then all bids together."""
        running, has_planned = self.scheduler.running, False
        while asking := [s for s in running if isinstance(s.waits_for, PlanRequest)]:
            answers = [sequence.answer() for sequence in asking]
            bids = [answer for answer in answers if isinstance(answer, Bid)]
            if len(bids) == len(asking):
                answers = [*self._planner.plan(bids, self.scheduler.load)]
                has_planned = True
            for sequence, plan in zip(asking, answers, strict=True):
                if isinstance(plan, Plan) and plan is not WAIT:
                    self._resume(sequence, plan.within(sequence.room))
        if not has_planned and any(s.policy.is_planned and not s.is_prefilling for s in running):
            self._planner.plan([], self.scheduler.load)

    def _run_drafts(self) -> list[PassStats]:
        """Run passes of the draft model until no sequence waits for one."""
        passes: list[PassStats] = []
        num_prefilled = 0
        while self._draft is not None and (done := self._forward(self._draft, num_prefilled)):
            num_prefilled += done.num_prefill
            passes.append(done)
        return passes

    def _forward(self, model: Runner, num_prefilled: int = 0) -> PassStats | None:
        """One pass of a model over all sequences that wait for it; None if there are none.

        num_prefilled: prompt tokens that it prefilled in this step.
        """
        watch = Stopwatch()
        while shares := self.scheduler.shares(model, num_prefilled):
            caches = [share.cache for share in shares]
            num_cached = sum(cache.length for cache in caches)
            padded, padding = self._padding(model, shares)
            try:
                spans = [
                    share.cache.span(share.limit, padding if share is padded else 0)
                    for share in shares
                ]
                forward(caches, spans)
            except CacheFullError as error:
                self.scheduler.preempt(error)
                continue
            except Exception as error:
                for share in shares:
                    share.sequence.end(error)
                return None
            for share in shares:
                self._resume(share.sequence)
            sizes = [len(span.tokens) for span in spans]
            self._count(model, shares)
            prefill = sum(n for n, share in zip(sizes, shares, strict=True) if share.is_prefill)
            return PassStats(sum(sizes), num_cached, len(sizes), prefill, watch.total())
        return None

    def _padding(self, model: Runner, shares: list[Share]) -> tuple[Share | None, int]:
        """Padding tokens that give the pass a usual size, and the sequence that they follow.

        They cannot follow a chunk of a prompt, and some models roll back slowly. If the size of a
        pass may change a text, only passes with planned draft lengths are padded.
        """
        decoding = [share for share in shares if not share.is_prefill]
        is_alone = len(decoding) == len(shares)
        if not (decoding and model.forgets_freely) or (model is self._draft and not is_alone):
            return None, 0
        size = num_tokens = sum(share.limit for share in shares)
        if model is self._draft:
            size = self._planner.draft_size(num_tokens, model.static_shapes)
        elif self._main.is_proven or any(s.sequence.policy.is_planned for s in decoding):
            size = self._planner.pass_size(num_tokens, self.scheduler.load)
        if size > num_tokens and model.num_free is not None:  # padding must not preempt a sequence
            size = min(size, max(num_tokens, model.num_free))
        return decoding[-1], size - num_tokens

    def _count(self, model: Runner, shares: list[Share]) -> None:
        """Count a decode pass, for the choice of static shapes."""
        shapes = self.shapes.get("main" if model is self._main else "draft")
        num_tokens = sum(share.limit for share in shares)
        if shapes is None or any(share.is_prefill for share in shares):
            return
        if model is not self._main:
            if num_tokens <= 2 * len(shares):  # larger ones catch up with skipped tokens
                shapes.count(num_tokens)
        elif any(share.sequence.policy.is_planned for share in shares):
            shapes.count(self._planner.wished)
        else:
            shapes.count(num_tokens)

    def _learn(self, drafts: list[PassStats], main: PassStats | None) -> None:
        """Update cost curves and static shapes with the passes of this step."""
        passes = drafts if main is None else [*drafts, main]
        seconds = sum(done.seconds for done in passes)
        for shapes in self.shapes.values():
            shapes.update(seconds, is_idle=not self.scheduler.running)
        if main is not None:
            self._planner.learn(StepStats(main, tuple(drafts)), self._main.static_shapes)
