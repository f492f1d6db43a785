"""Many sequences in one KV cache, above all in states of a stateful model: each gets its own."""

import random

import numpy as np
import pytest

from ov_specdec import ModelError, SpeculativePipeline
from ov_specdec.graph.paging import to_paged
from ov_specdec.models import prepare
from ov_specdec.models.compile import load_model
from ov_specdec.models.devices import RuntimeConfig
from ov_specdec.models.exported import open_exported
from ov_specdec.runner.base import Span
from tests.support.passes import NUM_IDS, tokens

VOCAB_SIZE = NUM_IDS
CLOSE = {"rtol": 0, "atol": 1e-4}
ONE_AT_A_TIME = ("mpt", "mistral", "bloom")
"""Positions that are no input, and a sliding window: what is hidden would show."""


def load(folder, max_masked=None):
    config = RuntimeConfig(kv="stateful", precision="exact", max_masked_tokens=max_masked)
    return load_model(open_exported(folder), config).runner


@pytest.fixture(scope="module")
def llama(tiny_pair):
    return tiny_pair[0]


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
        """By slot."""
        self.num_matched = self.most = 0

    def step(self):
        kind = self.random.choice(["open", "open", "free", "rollback", *["pass"] * 4])
        if kind == "open" and len(self.texts) < (self.model.max_sequences or 6):
            slot = self.model.open()
            self.texts[slot] = []
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
                num_kept = slot.num_kept(prompt)
                text += prompt[: slot.match_prefix(prompt)]
                assert len(text) == num_kept
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
        self.most = max(self.most, *(len(slot.batch.held) for slot in chosen))
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


@pytest.mark.parametrize("max_masked", [1, 20, 0])
def test_they_do_however_late_states_are_trimmed(llama, max_masked):
    crowd = Crowd(llama, 1, max_masked)
    for _ in range(150):
        crowd.step()
    assert crowd.most == 1 if max_masked == 0 else crowd.most > 3


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
        prompts = [tokens(size, size) for size in (1, 5, 20, 60) * 2]
        options = {"max_new_tokens": 12, "ignore_eos": True, "num_assistant_tokens": 3}
        results = pipeline.generate_batch(prompts, **options)
        for prompt, result in zip(prompts, results, strict=True):
            alone = pipeline.generate(prompt, cache_prompt=False, **options)
            assert result.token_ids == alone.token_ids
