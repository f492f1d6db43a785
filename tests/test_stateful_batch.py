"""Many sequences in the KV states of a stateful model: each gets what it gets alone."""

import random

import numpy as np
import pytest

from ov_specdec import SpeculativePipeline
from ov_specdec.cache.sequence import CachedSequence, alone, run
from ov_specdec.cache.session import Span
from ov_specdec.errors import SessionError
from ov_specdec.loading.compile import RuntimeConfig, load_model
from ov_specdec.loading.locate import embedded_folder
from ov_specdec.loading.source import open_source
from tests.tiny import ARCHITECTURES, TinyPair, make_pair

VOCAB_SIZE = 290
CLOSE = {"rtol": 0, "atol": 1e-4}
ONE_AT_A_TIME = ("mpt", "mistral")
"""Positions by index, and a sliding window: what is hidden would show."""


@pytest.fixture(scope="module", params=ARCHITECTURES)
def pair(request, shelf, tmp_path_factory):
    name = request.param
    target = tmp_path_factory.mktemp(name) / "pair"
    return TinyPair(shelf.copy(name, lambda folder: make_pair(name, folder), target))


def load(folder, max_hidden=None):
    config = RuntimeConfig(kv="stateful", precision="exact", max_hidden_tokens=max_hidden)
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
        session = self._model.open(object())
        [logits] = self._model.run([Span(session, text, num_rows)])
        session.drop()
        return logits.copy()


class Crowd:
    """Sequences that come, grow, are rolled back and go at random; all logits are compared."""

    def __init__(self, folder, seed, max_hidden=None):
        self.model, self.expected = load(folder, max_hidden), Alone(folder)
        self.random = random.Random(seed)  # noqa: S311
        self.texts = {}
        self.num_adopted = self.most = 0

    def step(self):
        kind = self.random.choice(["open", "leave", "rollback", "pass", "pass", "pass", "pass"])
        if kind == "open" and len(self.texts) < (self.model.max_sequences or 6):
            self.texts[self.model.open()] = []
        elif kind == "leave" and self.texts:
            session = self.random.choice(list(self.texts))
            text = self.texts.pop(session)
            if self.random.random() < 0.7:
                session.leave(text)
            else:
                session.drop()
            assert session.length == 0
        elif kind == "rollback":
            for session, text in self.texts.items():
                length = max(len(text) - self.random.randint(0, 5), 0)
                session.rollback(length)
                del text[length:]
        elif kind == "pass" and self.texts:
            self.run()

    def run(self):
        chosen = self.random.sample(list(self.texts), self.random.randint(1, len(self.texts)))
        spans = []
        for session in chosen:
            text = self.texts[session]
            if not text:
                prompt = [*tokens(self.random.randint(0, 30)), *self.new(25)]
                text += prompt[: session.adopt(prompt)]
                self.num_adopted += len(text) > 0
                new = prompt[len(text) :] or self.new(1)
            else:
                new = self.new(5)
            spans.append(Span(session, new, self.random.randint(1, len(new))))
        for span, logits in zip(spans, self.model.run(spans), strict=True):
            text = self.texts[span.session]
            text += span.tokens
            assert logits.shape == (span.num_rows, VOCAB_SIZE)
            np.testing.assert_allclose(logits, self.expected(text, span.num_rows), **CLOSE)
        for session in chosen:
            if self.random.random() < 0.8:
                session.settle(self.texts[session], len(self.texts[session]) - 1)
        self.most = max(self.most, *(len(session.row.batch.held) for session in chosen))
        for session, text in self.texts.items():
            assert session.length == len(text)
            if len(text) > 200:
                session.rollback(20)
                del text[20:]

    def new(self, most):
        return self.random.choices(range(VOCAB_SIZE), k=self.random.randint(1, most))


def test_sequences_that_come_and_go_get_their_own_logits(pair):
    crowd = Crowd(pair.main, 3)
    for _ in range(300):
        crowd.step()
    assert crowd.num_adopted > 5
    batches = pair.folder.parent.name.rstrip("0123456789") not in ONE_AT_A_TIME
    assert crowd.most > 3 if batches else crowd.most == 1


@pytest.mark.parametrize(("seed", "max_hidden"), [(1, None), (2, 1), (3, 20), (4, 0)])
def test_they_do_however_late_states_are_trimmed(llama, seed, max_hidden):
    crowd = Crowd(llama, seed, max_hidden)
    for _ in range(400):
        crowd.step()
    assert crowd.most == 1 if max_hidden == 0 else crowd.most > 3
