"""Many sequences in the KV states of a stateful model: each gets what it gets alone."""

import random

import numpy as np
import pytest

from ov_specdec import ModelError, SpeculativePipeline
from ov_specdec.errors import SessionError
from ov_specdec.graph.paging import to_paged
from ov_specdec.models import prepare
from ov_specdec.models.compile import load_model
from ov_specdec.models.locate import embedded_folder
from ov_specdec.models.runtime_config import RuntimeConfig
from ov_specdec.models.source import open_source
from ov_specdec.runner.base import Span
from ov_specdec.runner.cached_sequence import CachedSequence, alone, forward
from ov_specdec.runner.stateful import MAX_MASKED
from tests.support.flaky import make_flaky
from tests.support.tiny import ARCHITECTURES

VOCAB_SIZE = 290
CLOSE = {"rtol": 0, "atol": 1e-4}
ONE_AT_A_TIME = ("mpt", "mistral")
"""Positions by index, and a sliding window: what is hidden would show."""


def load(folder, max_masked=None):
    config = RuntimeConfig(kv="stateful", precision="exact", max_masked_tokens=max_masked)
    return load_model(open_source(folder), config, vocab_size=VOCAB_SIZE).runner


@pytest.fixture(scope="module")
def llama(tiny_pair):
    return tiny_pair[0]


@pytest.fixture
def model(llama):
    return load(llama)


def tokens(n, seed=0):
    return np.random.default_rng(seed).integers(0, VOCAB_SIZE, n).tolist()


class Alone:
    """Logits of texts, each read in one pass by a model that has nothing else."""

    def __init__(self, folder):
        self._model = load(folder)

    def __call__(self, text, num_rows):
        slot = self._model.open(object())
        [logits] = self._model.forward([Span(slot, text, num_rows)])
        slot.free()
        return logits.copy()


class Crowd:
    """Sequences that come, grow, are rolled back and go at random; all logits are compared."""

    def __init__(self, folder, seed, max_masked=None):
        self.model, self.expected = load(folder, max_masked), Alone(folder)
        self.random = random.Random(seed)  # noqa: S311
        self.texts = {}
        self.num_matched = self.most = 0

    def step(self):
        kind = self.random.choice(["open", "open", "free", "rollback", *["pass"] * 4])
        if kind == "open" and len(self.texts) < (self.model.max_sequences or 6):
            self.texts[self.model.open()] = []
        elif kind == "free" and self.texts:
            slot = self.random.choice(list(self.texts))
            text = self.texts.pop(slot)
            if self.random.random() < 0.7:
                slot.free(text)
            else:
                slot.free()
            assert slot.length == 0
        elif kind == "rollback":
            for slot, text in self.texts.items():
                length = max(len(text) - self.random.randint(0, 5), 0)
                slot.rollback(length)
                del text[length:]
        elif kind == "pass" and self.texts:
            self.forward()

    def forward(self):
        chosen = self.random.sample(list(self.texts), self.random.randint(1, len(self.texts)))
        spans = []
        for slot in chosen:
            text = self.texts[slot]
            if not text:
                prompt = [*tokens(self.random.randint(0, 30)), *self.new(25)]
                text += prompt[: slot.match_prefix(prompt)]
                self.num_matched += len(text) > 0
                new = prompt[len(text) :] or self.new(1)
            else:
                new = self.new(5)
            spans.append(Span(slot, new, self.random.randint(1, len(new))))
        for span, logits in zip(spans, self.model.forward(spans), strict=True):
            text = self.texts[span.slot]
            text += span.tokens
            assert logits.shape == (span.num_rows, VOCAB_SIZE)
            np.testing.assert_allclose(logits, self.expected(text, span.num_rows), **CLOSE)
        for slot in chosen:
            if self.random.random() < 0.9:
                slot.commit(self.texts[slot], len(self.texts[slot]) - 1)
        self.most = max(self.most, *(len(slot.row.batch.held) for slot in chosen))
        for slot, text in self.texts.items():
            assert slot.length == len(text)
            if len(text) > 200:
                slot.rollback(20)
                del text[20:]

    def new(self, most):
        return self.random.choices(range(VOCAB_SIZE), k=self.random.randint(1, most))


def test_sequences_that_come_and_go_get_their_own_logits(architecture, pair):
    crowd = Crowd(pair.main, 3)
    for _ in range(150):
        crowd.step()
    assert crowd.num_matched > 3
    batches = crowd.model.max_sequences is None
    assert batches == (architecture not in ONE_AT_A_TIME)
    assert crowd.most > 3 if batches else crowd.most == 1


@pytest.mark.parametrize(("seed", "max_masked"), [(1, None), (2, 1), (3, 20), (4, 0)])
def test_they_do_however_late_states_are_trimmed(llama, seed, max_masked):
    crowd = Crowd(llama, seed, max_masked)
    for _ in range(150):
        crowd.step()
    assert crowd.most == 1 if max_masked == 0 else crowd.most > 3


def feed(model, texts, slots=None):
    """Append a text to each sequence, in one pass; their last rows."""
    slots = slots or [model.open() for _ in texts]
    spans = [Span(slot, text, 1) for slot, text in zip(slots, texts, strict=True)]
    rows = [logits[0].copy() for logits in model.forward(spans)]
    for slot, text in zip(slots, texts, strict=True):
        slot.commit(text, len(text))
    return slots, rows


def test_a_ragged_pass_gives_each_row_its_own_logits(model, llama):
    texts = [tokens(size, size) for size in (3, 90, 41, 1)]
    slots, _ = feed(model, texts)
    more = [tokens(size, size + 1) for size in (4, 1, 16, 2)]
    spans = [
        Span(slot, new, num_rows)
        for slot, new, num_rows in zip(slots, more, (4, 1, 3, 2), strict=True)
    ]
    expected = Alone(llama)
    logits = [rows.copy() for rows in model.forward(spans)]
    assert len({id(slot.row.batch) for slot in slots}) == 1
    for span, rows, text in zip(spans, logits, texts, strict=True):
        np.testing.assert_allclose(rows, expected([*text, *span.tokens], span.num_rows), **CLOSE)


def test_one_pass_is_run_for_all_that_have_been_read(model):
    slots, _ = feed(model, [tokens(20, seed) for seed in range(4)])
    [batch] = {slot.row.batch for slot in slots}
    model.forward([Span(slot, [1], 1) for slot in slots])
    assert batch.num_entries == 21
    slots[0].free(tokens(20))
    slots[2].free()
    model.forward([Span(slots[1], [2, 3], 1)])
    assert [row.length for row in batch.rows] == [23, 21]
    assert batch.num_entries == 23


def test_a_prompt_that_others_would_be_padded_to_is_read_by_itself(model):
    first, second = (feed(model, [tokens(20, seed)])[0][0] for seed in range(2))
    late = model.open()
    model.forward([Span(first, [1], 1), Span(late, tokens(60), 1), Span(second, [2], 1)])
    assert first.row.batch is second.row.batch is not late.row.batch
    assert (first.row.batch.num_entries, late.row.batch.num_entries) == (21, 60)
    late.commit(tokens(60), 60)
    model.forward([Span(first, [1], 1), Span(late, [3], 1)])
    assert first.row.batch is late.row.batch
    assert second.row.batch.num_entries == 21  # it took no part, and joins when it does
    model.forward([Span(slot, [1], 1) for slot in (first, second, late)])
    assert {row.length for row in late.row.batch.rows} == {22, 23, 62}


def test_prompts_of_similar_length_are_read_together(model):
    slots, _ = feed(model, [tokens(size, size) for size in (60, 20, 80, 40, 41)])
    batches = [id(slot.row.batch) for slot in slots]
    assert batches[1] == batches[3] != batches[0] == batches[2] == batches[4]


def test_padding_is_dropped_when_there_is_much(model):
    slots, _ = feed(model, [tokens(20, seed) for seed in range(2)])
    for _ in range(40):
        for slot in slots:  # the other one is padded
            model.forward([Span(slot, tokens(5), 1)])
            assert slot.row.batch.num_masked <= MAX_MASKED + 5


@pytest.mark.parametrize("max_masked", [0, 8, None])
def test_hidden_entries_are_dropped_when_there_are_many(llama, max_masked):
    model = load(llama, max_masked)
    [slot], _ = feed(model, [tokens(20)])
    sizes = set()
    for _ in range(80):
        model.forward([Span(slot, tokens(5), 1)])
        slot.rollback(slot.length - 4)
        sizes.add(slot.row.batch.num_entries - slot.length)
    assert max(sizes) == (MAX_MASKED if max_masked is None else max_masked)


def test_sequences_go_on_from_what_others_have_read(model, llama):
    text, expected = tokens(50), Alone(llama)
    [first], _ = feed(model, [text])
    second, third, other = model.open(), model.open(), model.open("another namespace")
    assert second.match_prefix([*text[:30], 7, 8]) == 30  # of one that goes on
    first.free(text)
    assert third.match_prefix([*text, 9]) == 50  # of one that has left
    assert other.match_prefix(text) == 0
    logits = model.forward([Span(second, [7, 8], 2), Span(third, [9], 1)])
    np.testing.assert_allclose(logits[0], expected([*text[:30], 7, 8], 2), **CLOSE)
    np.testing.assert_allclose(logits[1], expected([*text, 9], 1), **CLOSE)


def test_what_is_rolled_back_or_dropped_is_not_found(model):
    text = tokens(20)
    [slot], _ = feed(model, [text])
    slot.rollback(12)
    assert model.open().match_prefix(text) == 12
    slot.free()
    assert model.open().match_prefix(text) == 0


def test_a_failed_pass_empties_its_sequences_and_they_are_read_again(model, llama):
    flaky = make_flaky(model)
    texts, expected = [tokens(30, seed) for seed in range(3)], Alone(llama)
    caches = [CachedSequence(model) for _ in texts]
    for cache, text in zip(caches, texts, strict=True):
        alone(cache.advance(text))
    flaky.fails_in = 1
    long = CachedSequence(model)
    reading = long.advance(tokens(90, 9))
    next(reading)
    steps = [cache.advance([*text, 5]) for cache, text in zip(caches, texts, strict=True)]
    for step in steps:
        next(step)
    # The prompt is read by itself, before the pass that fails.
    with pytest.raises(RuntimeError, match="the device is gone"):
        forward([*caches, long], [cache.span(512) for cache in (*caches, long)])
    assert [cache._slot.length for cache in (*caches, long)] == [0, 0, 0, 0]
    assert model.open().match_prefix(texts[0]) == 0
    for cache, text in zip(caches, texts, strict=True):
        done = alone(cache.advance([*text, 5, 6]))
        assert (done.num_tokens, cache.tokens) == (32, [*text, 5, 6])
        np.testing.assert_allclose(done.logits, expected([*text, 5, 6], 1), **CLOSE)


def test_passes_that_cannot_be_run_are_refused_and_change_nothing(model, llama):
    [first, second], _ = feed(model, [tokens(20), tokens(200)])
    for spans, message in (
        ([Span(first, [1], 1), Span(second, tokens(57), 1)], "holds 200 of 256 tokens: no room"),
        ([Span(first, [1], 1), Span(second, [], 1)], "at least one token"),
        ([Span(first, [1], 1), Span(second, [1, 2], 3)], "cannot give 3 rows"),
        ([Span(first, [1], 1), Span(load(llama).open(), [1], 1)], "another model"),
    ):
        with pytest.raises(SessionError, match=message):
            model.forward(spans)
        assert (first.length, second.length) == (20, 200)
    single = load(llama, max_masked=0)
    with pytest.raises(SessionError, match="over 2 sequences: this model takes 1 at a time"):
        single.forward([Span(single.open(), [1], 1), Span(single.open(), [1], 1)])


def test_the_states_of_a_sequence_are_read_and_written_beside_others(model, llama):
    texts, expected = [tokens(20), tokens(33, 1)], Alone(llama)
    slots, _ = feed(model, texts)
    model.forward([Span(slot, [1, 2], 1) for slot in slots])
    for slot in slots:
        slot.rollback(slot.length - 1)
    tensors = model.read_kv(slots[1])
    copy = model.open()
    with pytest.raises(SessionError, match="does not fit this KV cache"):
        model.write_kv(copy, tensors, 33)
    assert copy.length == 0
    model.write_kv(copy, tensors, 34)
    everyone = [Span(slot, [7], 1) for slot in (*slots, copy)]
    logits = [rows.copy() for rows in model.forward(everyone)]
    for rows, text in zip(logits, [*texts, texts[1]], strict=True):
        np.testing.assert_allclose(rows, expected([*text, 1, 7], 1), **CLOSE)


def requests(seed):
    """Sixteen prompts and their options: greedy and sampling, plain and with drafts."""
    choose = random.Random(seed)  # noqa: S311
    system = tokens(40, seed)
    prompts, options = [], []
    for i in range(16):
        size = choose.choice([1, 5, 20, 60])
        prompts.append([*system[: choose.choice([0, 40])], *tokens(size, 100 * seed + i)])
        options.append({"max_new_tokens": choose.randint(1, 14)})
        if i % 2:
            options[-1] |= {"do_sample": True, "seed": i, "temperature": 0.8, "top_k": 20}
        options[-1]["num_assistant_tokens"] = choose.choice([0, 2, 4, "auto"])
    return prompts, options


def check_batch(pipeline, prompts, options):
    """All at once, they get what each gets alone, twice."""
    shared = {"ignore_eos": True}
    expected = [
        pipeline.generate(prompt, cache_prompt=False, **shared, **own).token_ids
        for prompt, own in zip(prompts, options, strict=True)
    ]
    for _ in range(2):
        results = pipeline.generate_batch(prompts, options, **shared)
        assert [result.token_ids for result in results] == expected


@pytest.mark.parametrize(
    "architecture",
    [
        pytest.param(n, marks=[] if n in ("llama", "mistral") else pytest.mark.deep)
        for n in ARCHITECTURES
    ],
    indirect=True,
    scope="module",
)
def test_sixteen_requests_at_once_get_what_each_gets_alone(architecture, pair):
    with SpeculativePipeline(pair.main, pair.draft, kv="stateful", precision="exact") as pipeline:
        check_batch(pipeline, *requests(ARCHITECTURES.index(architecture)))


PROMPTS = [
    "def area(width, height):\n    return",
    "class Stack:\n    def push(self, item):\n",
    "import os\n\nfor name in os.listdir(path):\n",
    "# the mean of some values\ndef mean(values):\n",
]


@pytest.mark.deep
def test_they_do_on_the_embedded_pair():
    pair = embedded_folder("main"), embedded_folder("draft")
    with SpeculativePipeline(*pair, kv="stateful", precision="exact") as pipeline:
        _, options = requests(1)
        check_batch(
            pipeline, [f"# {i}\n" * (i % 5) + p for i, p in enumerate(PROMPTS * 4)], options
        )


@pytest.mark.parametrize("stateful", ["main", "draft"])
def test_one_model_may_be_stateful_and_the_other_paged(tiny_pair, monkeypatch, stateful):
    calls = iter(["main", "draft"])

    def convert(model):
        if next(calls) == stateful:
            raise ModelError("no attention found")
        to_paged(model)

    monkeypatch.setattr(prepare, "to_paged", convert)
    with SpeculativePipeline(*tiny_pair, precision="exact") as pipeline:
        kinds = {"main": pipeline.main.kv, "draft": pipeline.draft.kv}
        assert [role for role, kv in kinds.items() if kv == "stateful"] == [stateful]
        check_batch(pipeline, *requests(20))
