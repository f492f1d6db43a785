"""Requests that run together: each gets what it gets alone, in any order, with any memory."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ov_specdec.cache.sequence import CachedSequence
from ov_specdec.costs import NOMINAL, FixedCurve
from ov_specdec.sampling.samplers import GreedySampler
from ov_specdec.scheduling import Limits, Request, Scheduler, Turns
from ov_specdec.speculation.draft_length import ConstantLength
from ov_specdec.speculation.drafters import ModelDrafter, PromptLookup
from ov_specdec.speculation.engine import SequenceState, Speculation
from tests.fakes import ScriptedModel, mixing, wrong_at


class Bench:
    """A scheduler over scripted models, and what its requests give alone."""

    def __init__(
        self, *, num_blocks=None, draft_blocks=None, max_batch_size=16, chunk=8, places=()
    ):
        script = mixing(1)
        self.script = script
        self.main = ScriptedModel(script, num_blocks=num_blocks)
        self.draft = ScriptedModel(wrong_at(script, set(places)), num_blocks=draft_blocks)
        limits = Limits(max_batch_size, chunk)
        self.scheduler = Scheduler(self.main, self.draft, limits, FixedCurve(NOMINAL))
        self.turns = Turns(self.scheduler)

    def request(self, prompt, num_new, length=3, *, drafter="model", sampler=None, **settings):
        state = SequenceState(list(prompt), len(prompt) + num_new)

        def start():
            sources = {
                "model": lambda: ModelDrafter(CachedSequence(self.draft), GreedySampler()),
                "lookup": PromptLookup,
                "none": lambda: None,
            }
            return Speculation(
                CachedSequence(self.main),
                sampler or GreedySampler(),
                state,
                sources[drafter](),
                ConstantLength(length),
            )

        return Request(start, lambda round_: round_.tokens, len(prompt), **settings)

    def alone(self, prompt, num_new):
        text = list(prompt)
        for _ in range(num_new):
            text.append(self.script(text))
        return text[len(prompt) :]

    def run(self, requests):
        for request in requests:
            self.turns.submit(request)
        return [list(self.turns.read(request)) for request in requests]


PROMPTS = st.lists(st.integers(0, 3), min_size=1, max_size=40)
JOBS = st.lists(
    st.tuples(
        PROMPTS,
        st.integers(1, 12),
        st.integers(0, 5),
        st.sampled_from(["model", "lookup", "none"]),
    ),
    min_size=1,
    max_size=8,
)


@given(
    JOBS, st.integers(1, 5), st.integers(15, 60), st.integers(1, 20), st.sets(st.integers(0, 60))
)
@settings(max_examples=200)
def test_every_request_gets_what_it_gets_alone(jobs, batch, num_blocks, chunk, places):
    bench = Bench(
        num_blocks=num_blocks,
        draft_blocks=num_blocks,
        max_batch_size=batch,
        chunk=chunk,
        places=places,
    )
    requests = [
        bench.request(prompt, num_new, length, drafter=drafter, max_unread=None)
        for prompt, num_new, length, drafter in jobs
    ]
    expected = [bench.alone(prompt, num_new) for prompt, num_new, _, _ in jobs]
    assert bench.run(requests) == expected
    assert bench.scheduler.is_idle
    assert bench.main.pool.num_used == bench.draft.pool.num_used == 0
