"""Texts in the fastest precision that is batch-invariant here: the same, however they come about.

The tiny pair's weights are random, so that the best tokens are often nearly equal: a row that is
off in its last bit shows soon.
"""

from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ov_specdec import SpeculativePipeline
from ov_specdec.engine.sequence import Sequence

preempt = Sequence.preempt
ON = {"batch_invariant": True, "profile": "none"}
PLAIN = {"drafter": "none", "batch_invariant": True}
RUN = {"max_new_tokens": 40, "ignore_eos": True}
SEEDED = {"do_sample": True, "temperature": 0.8, "seed": 7}
GREEDY = {}
PROMPTS = tuple("def f(x, y): return sorted(map(str, x))\n# " * n + "class" for n in (1, 2, 3, 4))
MEMORY = 3 * 256 * 400 / 1e9
"""GB for three sequences of the greatest length, at less than 400 bytes a token."""


@pytest.fixture(scope="module")
def alone(tiny_pair):
    """Gives what plain decoding makes of a prompt or its ids, alone and on an empty cache."""
    pipeline = SpeculativePipeline(tiny_pair[0], **PLAIN)

    @cache
    def generate(prompt, options):
        run = {**RUN, **dict(options), "cache_prompt": False}
        return pipeline.generate(
            prompt if isinstance(prompt, str) else list(prompt), **run
        ).token_ids

    def get(prompt, options):
        drawn = {k: v for k, v in options.items() if k != "num_assistant_tokens"}
        return generate(prompt, tuple(sorted(drawn.items())))

    yield get
    pipeline.close()


@pytest.fixture(
    scope="module",
    params=[
        *("both", "suffix", "parallel"),
        *(pytest.param(n, marks=pytest.mark.deep) for n in ("model", "prompt-lookup", "none")),
    ],
)
def pipeline(request, tiny_pair, parallel_pair):
    """One for each drafter, and one with a parallel draft."""
    is_parallel = request.param == "parallel"
    drafter = "model" if is_parallel else request.param
    drafts = drafter in ("model", "both")
    models = (parallel_pair if is_parallel else tiny_pair)[: 1 + drafts]
    options = ON if drafts else PLAIN
    with SpeculativePipeline(*models, **{**options, "drafter": drafter}) as pipeline:
        yield pipeline


@pytest.mark.parametrize("options", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_texts_are_those_of_plain_decoding_alone(pipeline, alone, options):
    lengths = ["auto"] if pipeline.drafter == "none" else [1, 3, 8, "auto"]
    for prompt in PROMPTS:
        expected = alone(prompt, options)
        for length in lengths:  # the second finds its prompt cached
            run = {**RUN, **options, "num_assistant_tokens": length}
            assert pipeline.generate(prompt, **run).token_ids == expected


@pytest.mark.parametrize("options", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_so_are_those_of_a_batch(pipeline, alone, options):
    prompts = PROMPTS * 4
    results = pipeline.generate_batch(prompts, **RUN, **options)
    for prompt, result in zip(prompts, results, strict=True):
        assert result.token_ids == alone(prompt, options)


def test_so_are_those_on_static_shapes(tiny_pair, alone):
    with SpeculativePipeline(*tiny_pair, static_shapes=[2, 4, 6, 9], **ON) as pipeline:
        pipeline.prepare()
        for prompt in PROMPTS:
            for length in (0, 3, 5, 8):
                run = {**RUN, "num_assistant_tokens": length}
                assert pipeline.generate(prompt, **run).token_ids == alone(prompt, GREEDY)


def test_so_are_those_on_loaded_caches(tiny_pair, alone, tmp_path):
    file = tmp_path / "kept.safetensors"
    with SpeculativePipeline(*tiny_pair, **ON) as pipeline:
        pipeline.generate(PROMPTS[2], **{**RUN, "max_new_tokens": 7})
        pipeline.save_cache(file)
    with SpeculativePipeline(*tiny_pair, **ON) as pipeline:
        pipeline.load_cache(file)
        for prompt in (PROMPTS[2], PROMPTS[3]):
            result = pipeline.generate(prompt, **RUN)
            assert result.stats.cached_tokens > 0
            assert result.token_ids == alone(prompt, GREEDY)


class Requests:
    """Requests that come, run, are cancelled and go on, in any order."""

    def __init__(self, batch, alone):
        self.batch = batch
        self._alone = alone
        self._asked = []
        self._ids = []
        self._ended = []

    def submit(self, prompt, options):
        """Ask for a text. prompt: its ids."""
        self.batch.add(len(self._asked), list(prompt), **RUN, **options)
        self._asked.append((tuple(prompt), options))
        self._ids.append([])

    def step(self, times=1):
        """Run steps of all, and compare what ends."""
        for key, chunk in (each for _ in range(times) for each in self.batch.step()):
            assert not isinstance(chunk, BaseException), chunk
            self._ids[key] += chunk.token_ids
            if chunk.finish_reason is not None:
                self._compare(key, chunk.finish_reason)

    def cancel(self, number):
        """End one of them, if it has not ended."""
        if self._asked:
            self.batch.cancel(number % len(self._asked))

    def go_on(self, number, options):
        """Ask for what follows a text that has ended, whose tokens are cached or were."""
        if self._ended:
            key = self._ended[number % len(self._ended)]
            prompt, _ = self._asked[key]
            if len(prompt) < 150:
                self.submit(prompt + tuple(self._ids[key][:20]), options)

    def finish(self):
        """Run until all have ended."""
        while len(self.batch):
            self.step()

    def _compare(self, key, reason):
        self._ended.append(key)
        expected, ids = self._alone(*self._asked[key]), self._ids[key]
        assert ids == (expected[: len(ids)] if reason == "cancelled" else expected)


OPTIONS = st.builds(
    lambda length, drawn: {**drawn, "num_assistant_tokens": length},
    st.sampled_from([0, 1, 4, 9, "auto"]),
    st.sampled_from([GREEDY, SEEDED, {**SEEDED, "seed": 8}]),
)
"""How long drafts are, which is not to matter, and how tokens are chosen."""

ACTIONS = st.one_of(
    st.tuples(st.just("submit"), st.sampled_from(PROMPTS), OPTIONS),
    st.tuples(st.just("step"), st.integers(1, 9)),
    st.tuples(st.just("cancel"), st.integers(0, 9)),
    st.tuples(st.just("go_on"), st.integers(0, 9), OPTIONS),
)


@pytest.fixture(scope="module", params=["tiny_pair", "parallel_pair"])
def crowded(request):
    """A pipeline whose memory holds few of the requests that it gets."""
    pair = request.getfixturevalue(request.param)
    with SpeculativePipeline(*pair, drafter="both", kv_cache_size=MEMORY, **ON) as pipeline:
        yield pipeline


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=st.lists(ACTIONS, min_size=4, max_size=25))
def test_so_are_those_of_requests_in_any_order(crowded, alone, actions):
    with crowded.open_batch() as batch:
        requests = Requests(batch, alone)
        for name, *arguments in actions:
            if name == "submit":
                arguments[0] = crowded.tokenizer.encode(arguments[0])
            getattr(requests, name)(*arguments)
        requests.finish()


def test_so_are_those_that_give_their_memory_up(crowded, alone, monkeypatch):
    preempted = []
    monkeypatch.setattr(Sequence, "preempt", lambda self: preempted.append(preempt(self)))
    with crowded.open_batch() as batch:
        requests = Requests(batch, alone)
        for prompt in PROMPTS * 4:
            requests.submit(crowded.tokenizer.encode(prompt), {"num_assistant_tokens": 3})
        requests.finish()
    assert preempted
