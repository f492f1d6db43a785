"""Requests that run together: each gets what it gets alone, in any order, with any memory."""

from functools import partial
from time import monotonic

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ov_specdec.drafters.model import DraftCache, ModelDrafter
from ov_specdec.drafters.prompt_lookup import PromptLookup
from ov_specdec.engine.engine import Engine
from ov_specdec.engine.loop import EngineLoop
from ov_specdec.engine.output import Reader
from ov_specdec.engine.scheduler import SHARED_SECONDS, StepLimits
from ov_specdec.engine.sequence import Cancelled
from ov_specdec.errors import CacheFullError
from ov_specdec.planning.acceptance import Counts
from ov_specdec.planning.costs import NOMINAL, CostCurve, Costs, PassCurve
from ov_specdec.planning.learned_costs import LearnedCosts
from ov_specdec.planning.planner import Planner
from ov_specdec.planning.policies import ConstantLength, PlannedLength
from ov_specdec.runner.cached_sequence import PREFILL_CHUNK
from ov_specdec.sampling.samplers import Sampler
from ov_specdec.server.metrics import Metrics
from tests.support.fakes import MASK, ScriptedModel, in_parallel, mixing, wrong_at
from tests.support.running import Rounds, sequence
from tests.support.scripted import PATIENCE

SCRIPT = mixing(1)

CANCELLED = -1
"""In place of a token, that the request was cancelled."""


class Failing:
    """A logits processor that raises after some calls."""

    def __init__(self, calls):
        self._calls = calls

    def __call__(self, tokens, logits):
        self._calls -= 1
        if self._calls < 0:
            raise ValueError("this processor is broken")
        return logits


class Tokens(Rounds):
    """Publishes token ids, and counts draft tokens that were rejected before the last round."""

    num_rejected = 0

    def cancelled(self):
        return CANCELLED

    def add(self, round_, finish_reason):
        if finish_reason is None:
            self.num_rejected += round_.stats.num_drafted - round_.stats.num_accepted
        return round_.tokens


class Service:
    """A scheduler over scripted models.

    wrong: places at which the draft model is wrong. borders: of the main and the draft model.
    """

    def __init__(
        self,
        *,
        num_blocks=None,
        max_length=1000,
        max_batch_size=16,
        chunk=8,
        wrong=(),
        costs=Costs(NOMINAL),
        borders=(None, None),
    ):
        sizes = {"num_blocks": num_blocks, "max_length": max_length}
        self.main = ScriptedModel(SCRIPT, **sizes, border=borders[0])
        drafted = in_parallel(wrong_at(SCRIPT, set(wrong)))
        self.draft = ScriptedModel(drafted, **sizes, border=borders[1])
        limits = StepLimits(max_batch_size, chunk)
        self.costs = costs
        self.engine = Engine(self.main, self.draft, limits, costs)
        self.loop = EngineLoop(self.engine)

    def request(
        self, prompt, num_new=5, length=3, *, drafter="model", processors=(), tenant=None, **reader
    ):
        def with_model(mask_token=None):
            self.draft.mask_token = mask_token
            return ModelDrafter(DraftCache(self.draft), Sampler())

        drafters = {
            "model": lambda: (with_model(),),
            "parallel": lambda: (with_model(MASK),),
            "lookup": lambda: (PromptLookup(),),
            "none": tuple,
        }
        policy = ConstantLength(length)
        if length is None:
            policy = PlannedLength(Counts(), Costs(NOMINAL))
        return sequence(
            self.main,
            prompt,
            len(prompt) + num_new,
            drafters[drafter](),
            policy,
            sampler=Sampler(processors),
            tenant=tenant,
            output=Tokens(Reader(**reader) if reader else None),
        )

    def submit(self, *requests):
        for request in requests:
            self.engine.scheduler.waiting.add(request)

    def run(self, requests):
        """What each request publishes, read one after the other."""
        for request in requests:
            self.loop.add(request)
        return [list(self.loop.read(request)) for request in requests]

    def finish(self, *, at_most=2000):
        """Step until nothing is left to do."""
        for _ in range(at_most):
            if not [*self.engine.scheduler.running, *self.engine.scheduler.waiting]:
                return
            self.engine.step()
        pytest.fail("requests starve")

    def check_nothing_is_held(self):
        assert not self.engine.scheduler.running
        assert self.main.pool.num_used == self.draft.pool.num_used == 0


def alone(prompt, num_new=5):
    text = list(prompt)
    for _ in range(num_new):
        text.append(SCRIPT(text))
    return text[len(prompt) :]


PROMPTS = st.lists(st.integers(0, 3), min_size=1, max_size=40)
JOBS = st.tuples(
    PROMPTS,
    st.integers(1, 12) | st.just(90),  # as many as need room that others hold
    st.integers(0, 5) | st.sampled_from([300, None]),  # long, and planned
    st.sampled_from(["model", "parallel", "lookup", "none"]),
)
POOLS = st.integers(34, 80)
"""Blocks of four tokens: 33 hold the longest of these requests."""
BORDERS = st.none() | st.integers(1, 50)
"""Lengths beyond which a sequence is computed anew; most models have none."""


@given(
    st.lists(JOBS, min_size=1, max_size=8),
    st.integers(1, 5),
    POOLS,
    st.integers(1, 20),
    st.just(set()) | st.sets(st.integers(0, 60)),
    st.tuples(BORDERS, BORDERS),
)
@settings(max_examples=60)
def test_every_request_gets_what_it_gets_alone(jobs, batch, num_blocks, chunk, wrong, borders):
    limits = {"num_blocks": num_blocks, "max_batch_size": batch, "chunk": chunk}
    service = Service(**limits, wrong=wrong, borders=borders, costs=LearnedCosts(NOMINAL))
    requests = [
        service.request(prompt, num_new, length, drafter=drafter, tenant=prompt[0] % 3)
        for prompt, num_new, length, drafter in jobs
    ]
    assert service.run(requests) == [alone(prompt, num_new) for prompt, num_new, *_ in jobs]
    service.check_nothing_is_held()
    for request, (*_, drafter) in zip(requests, jobs, strict=True):
        # A draft that is always right is rejected only where its cache holds something else.
        assert wrong or drafter == "lookup" or not request.output.num_rejected


EVENTS = st.one_of(
    st.tuples(st.just("submit"), JOBS),
    st.tuples(st.just("broken"), st.tuples(JOBS, st.integers(0, 5))),
    st.tuples(st.just("step"), st.integers(1, 5)),
    st.tuples(st.just("cancel"), st.integers(0, 10)),
    st.tuples(st.just("read"), st.integers(0, 10)),
    st.tuples(st.just("fail"), st.integers(0, 3)),
)


@given(st.lists(EVENTS, max_size=40), st.integers(1, 4), POOLS, st.integers(1, 20))
@settings(max_examples=60)
def test_arrivals_cancellations_and_errors_change_nothing_for_others(
    events, batch, num_blocks, chunk
):
    service = Service(num_blocks=num_blocks, max_batch_size=batch, chunk=chunk, wrong={3, 9, 20})
    jobs, got = [], []
    for event, value in events:
        if event in ("submit", "broken"):
            (prompt, num_new, length, drafter), calls = (
                value if event == "broken" else (value, 1000)
            )
            request = service.request(
                prompt,
                num_new,
                length,
                drafter=drafter,
                processors=[Failing(calls)],
                tenant=prompt[0] % 3,
            )
            service.submit(request)
            jobs.append((request, alone(prompt, num_new)))
            got.append([])
        elif event == "step":
            for _ in range(value):
                service.engine.step()
        elif event == "fail":
            service.main.fails_in = value
        elif value < len(jobs):
            request = jobs[value][0]
            if event == "cancel":
                request.cancel()
            while event == "read" and request.output.unread:
                got[value].append(request.output.unread.popleft())
    service.main.fails_in = None
    for _ in range(2000):
        for (request, _), tokens in zip(jobs, got, strict=True):
            while request.output.unread:
                tokens.append(request.output.unread.popleft())
        if all(request.has_ended for request, _ in jobs):
            break
        service.engine.step()
    for (request, expected), tokens in zip(jobs, got, strict=True):
        assert request.has_ended
        if tokens[-1:] == [CANCELLED]:
            assert tokens.pop() and request.is_cancelled
        assert tokens == expected[: len(tokens)]
        has_failed = isinstance(request.error, ValueError | RuntimeError)
        assert tokens == expected or has_failed or (request.is_cancelled and not request.error)
    service.engine.scheduler.sweep()
    service.check_nothing_is_held()


def test_a_request_waits_for_room_that_a_prompt_in_prefill_will_need():
    service = Service(num_blocks=32)
    decoding = service.request([1], 40, drafter="none")
    service.submit(decoding)
    service.engine.step()
    prefilling = service.request([2] * 60, 30, drafter="none")
    service.submit(prefilling)
    service.engine.step()
    assert service.main.passes[-1] < 20  # most of its prompt is still to be read
    late = service.request([3] * 20, 20, drafter="none")
    service.submit(late)
    service.engine.scheduler.on_preemption = lambda: pytest.fail("a request was preempted")
    service.finish()
    assert list(late.output.unread) == alone([3] * 20, 20)


@pytest.mark.parametrize(
    ("cancelled", "order"), [((), "abcaba"), ((0,), "abcab"), ((0, 3), "abca"), ((5,), "ababa")]
)
def test_tenants_with_as_many_running_are_served_in_turns(cancelled, order):
    service, served = Service(max_batch_size=1), []
    for number, name in enumerate("aaabbc"):
        admitted = partial(served.append, name)
        request = service.request([1], 1, drafter="none", tenant=name, on_admit=admitted)
        service.submit(request)
        if number in cancelled:  # while it waits
            request.cancel()
    service.finish()
    assert "".join(served) == order


@pytest.mark.parametrize("memory", [None, 30], ids=["places", "memory"])
def test_a_request_of_many_choices_makes_room_for_another_tenant(memory):
    service = Service(max_batch_size=4 if memory is None else 16, num_blocks=memory)
    metrics = Metrics("tiny")
    metrics.watch(service.loop, service.main, 1)
    many = [service.request([i] * 12, 12, drafter="none", tenant="a") for i in range(12)]
    service.submit(*many)
    for _ in range(3):
        service.engine.step()
    small = service.request([1] * 8, 3, drafter="none", tenant="b")
    service.submit(small)
    for _ in range(3):
        service.engine.step()
    assert small.has_ended
    assert not any(request.has_ended for request in many)
    service.finish()
    assert [list(r.output.unread) for r in many] == [alone([i] * 12, 12) for i in range(12)]
    name = "ov_specdec:num_preemptions_total"
    assert metrics.registry.get_sample_value(name, {"model_name": "tiny"}) > 0


def meet(service):
    """Run one tenant after another."""
    for name in "ba":
        service.submit(service.request([2], 1, drafter="none", tenant=name))
        service.finish()
    service.main.sizes.clear()


@pytest.mark.parametrize("minutes", [0, 9, 11])
def test_passes_stay_short_until_other_tenants_have_long_gone(monkeypatch, minutes):
    service = Service(max_length=2000, chunk=48)
    meet(service)
    now = monotonic() + 60 * minutes
    monkeypatch.setattr("ov_specdec.engine.scheduler.monotonic", lambda: now)
    service.submit(*(service.request([i] * 900, 9, drafter="none", tenant="a") for i in range(3)))
    service.finish()
    most = PREFILL_CHUNK if minutes > SHARED_SECONDS / 60 else 64
    assert max(map(sum, service.main.sizes)) == most
    assert sum(map(sum, service.main.sizes)) < 2750  # padded, if more


def test_a_short_prompt_is_read_before_long_ones_of_another_tenant():
    service = Service(max_length=2000)
    service.submit(*(service.request([i] * 900, 2, drafter="none", tenant="a") for i in range(3)))
    service.submit(small := service.request([9] * 20, 24, drafter="none", tenant="b"))
    service.engine.step()
    assert small.cache.length == 20
    assert sum(map(sum, service.main.sizes)) < 900


def test_a_request_that_does_not_fit_alone_ends_with_the_error():
    service = Service(num_blocks=8)
    request = service.request([1] * 40)
    with pytest.raises(CacheFullError):
        service.run([request])
    service.check_nothing_is_held()


class Unasked:
    """Costs that nobody may ask for. Implements `Costs`."""

    @property
    def curve(self):
        pytest.fail("the costs of passes were asked for")

    def learn(self, role, done, static):
        pass


def test_costs_that_no_length_follows_are_not_asked_for():
    service = Service(costs=Unasked())
    requests = [service.request([1, 2], drafter="none"), service.request([3, 4])]
    assert service.run(requests) == [alone([1, 2]), alone([3, 4])]


def test_an_error_of_planning_reaches_the_reader_and_leaves_the_models_free(monkeypatch):
    def broken(*_):
        raise ValueError("operands could not be broadcast together")

    service = Service()
    with monkeypatch.context() as patch:
        patch.setattr(Planner, "plan", broken)
        with pytest.raises(ValueError, match="broadcast"):
            list(service.loop.read(service.request([1, 2], length=None)))
    service.check_nothing_is_held()
    request = service.request([1, 2], length=None)
    assert list(service.loop.read(request)) == alone([1, 2])


def test_what_is_added_after_the_end_ends_though_nobody_steps_any_more():
    service = Service()
    service.loop.start(lambda error: None)
    service.loop.close()
    service.loop.join(PATIENCE)
    assert not service.loop.is_alive
    errors = []
    request = service.request([1, 2], on_end=errors.append)
    service.loop.add(request)
    assert [type(error) for error in errors] == [Cancelled]
    assert request.has_ended


def test_closing_during_a_step_ends_what_comes_with_it():
    service = Service()

    def closing(tokens, logits):
        service.loop.close()
        return logits

    request = service.request([1] * 8, 60, processors=[closing])
    late = service.request([2] * 8, 60)
    assert list(service.loop.read(request))[-1] is CANCELLED
    assert list(service.loop.read(late)) == [CANCELLED]
    service.check_nothing_is_held()


def test_what_is_cancelled_at_the_end_of_a_step_frees_its_blocks():
    service = Service()
    request = service.request([1] * 8, 60)
    service.loop.add(request)
    step = service.engine.step

    def cancelled_after_it():
        step()
        service.loop.cancel(request)  # by another thread, which leaves it to the stepping one

    service.engine.step = cancelled_after_it
    service.loop.step()
    assert request.has_ended
    service.check_nothing_is_held()


def test_no_pass_is_filled_up_where_that_would_preempt_a_sequence(monkeypatch):
    curve = PassCurve({1: 1.0, 101: 1.5}, change=3.0, static=frozenset({48}))
    costs = Costs(CostCurve(curve, PassCurve({1: 0.01})))
    service = Service(num_blocks=40, max_length=170, wrong=range(0, 200, 2), costs=costs)

    def preempt(error):
        pytest.fail(f"a sequence was preempted: {error}")

    monkeypatch.setattr(service.engine.scheduler, "preempt", preempt)
    outputs = service.run([service.request([start], 36, None) for start in range(4)])
    assert outputs == [alone([start], 36) for start in range(4)]
    assert max(service.main.passes) > 4  # draft tokens, or tokens that fill up
