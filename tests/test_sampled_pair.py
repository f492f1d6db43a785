"""The embedded pair, sampled: thousands of speculative tokens against exact distributions."""

import numpy as np
import pytest
from scipy.stats import chi2

from ov_specdec import GenerationOptions
from ov_specdec.loading.compile import RuntimeConfig, load_model
from ov_specdec.loading.locate import embedded_folder
from ov_specdec.loading.source import open_source
from ov_specdec.sampling.from_options import make_samplers
from ov_specdec.speculation import verification
from ov_specdec.speculation.draft_length import ConstantLength
from ov_specdec.speculation.drafters import ModelDrafter
from ov_specdec.speculation.engine import SequenceState, speculate

NUM_SAMPLES = 3000
NEW_TOKENS = 3
NUM_BINS = 12
VOCAB_SIZE = 4096
PROMPT = "for "  # here the draft is far enough from the main that a wrong sampler shows

OPTION_SETS = {
    "temperature 0.7": {"temperature": 0.7},
    "temperature 1": {"temperature": 1.0},
    "temperature 1.5": {"temperature": 1.5},
    "top_k": {"top_k": 20},
    "top_p": {"top_p": 0.8},
    "min_p": {"min_p": 0.05},
    "repetition penalty": {"do_sample": True, "repetition_penalty": 1.4},
    "greedy draft": {"temperature": 1.0, "assistant_do_sample": False},
    "all together": {
        "temperature": 0.9,
        "top_k": 100,
        "top_p": 0.95,
        "min_p": 0.01,
        "typical_p": 0.95,
        "repetition_penalty": 1.2,
        "presence_penalty": 0.3,
        "frequency_penalty": 0.2,
        "no_repeat_ngram_size": 3,
    },
}


class RememberingSession:
    """A session that computes the logits of a token after a given history once.

    Samples share their prompt and often their next tokens, so that most rows come from memory.
    """

    def __init__(self, session):
        self._session = session
        self._rows = {}
        self._text = []
        self.max_length = session.max_length

    @property
    def length(self):
        return len(self._text)

    def forward(self, tokens, num_rows=None):
        start = len(self._text)
        self._text = [*self._text, *tokens]
        keys = [tuple(self._text[: end + 1]) for end in range(start, len(self._text))]
        if not all(key in self._rows for key in keys):
            self._session.reset()
            rows = self._session.forward(self._text)
            for end in range(len(self._text)):
                self._rows.setdefault(tuple(self._text[: end + 1]), rows[end].copy())
        wanted = keys[len(keys) - (num_rows or len(keys)) :]
        return np.array([self._rows[key] for key in wanted])

    def rollback(self, length):
        self._text = self._text[:length]

    def reset(self):
        self._text = []


@pytest.fixture(scope="module")
def pair():
    sources = [open_source(embedded_folder(role)) for role in ("main", "draft")]
    # Rows are computed once and remembered, so that any precision is exact here.
    sessions = [
        load_model(source, RuntimeConfig(), vocab_size=VOCAB_SIZE).session for source in sources
    ]
    prompt = sources[0].tokenizer.encode(PROMPT)
    return [RememberingSession(session) for session in sessions], prompt


def samples(pair, options, seed):
    """Speculative samples: outputs of NEW_TOKENS tokens, of which the last two are speculative."""
    (main, draft), prompt = pair
    # One generator for all samples: each of them is a generation with a seed of its own.
    seeds = np.random.default_rng(seed).integers(0, 2**32, NUM_SAMPLES)
    for own_seed in seeds:
        chosen = GenerationOptions(**options, seed=int(own_seed))
        rules = make_samplers(chosen, prompt_length=len(prompt), eos_token_ids=frozenset())
        text = SequenceState(list(prompt), len(prompt) + NEW_TOKENS)
        drafter = ModelDrafter(draft, rules.draft)
        list(speculate(main, drafter, ConstantLength(2), rules.main, text))
        yield text.tokens, rules.main


def binned(distribution):
    """The bin of each token [vocab], -1 where it cannot be drawn, and the mass of each bin.

    Tokens are ordered by probability and cut into bins of about equal mass.
    """
    order = np.argsort(-distribution.probs, kind="stable")
    order = order[distribution.probs[order] > 0]
    probs = distribution.probs[order]
    bins = np.minimum((probs.cumsum() - probs) * NUM_BINS, NUM_BINS - 1).astype(np.int8)
    bin_of = np.full(VOCAB_SIZE, -1, np.int8)
    bin_of[order if distribution.ids is None else distribution.ids[order]] = bins
    return bin_of, np.bincount(bins, weights=probs, minlength=NUM_BINS)


def p_value(pair, options, seed):
    """The chi-square test of all speculative tokens against the exact distributions.

    Bins are counted over all samples; each count is a sum of draws whose means and covariances are
    known, given the history of each. The last bin follows from the others and is left out.
    """
    (main, _), prompt = pair
    excess = np.zeros(NUM_BINS)
    covariance = np.zeros((NUM_BINS, NUM_BINS))
    known = {}
    for tokens, sampler in samples(pair, options, seed):
        for place in range(len(prompt) + 1, len(tokens)):
            history = tuple(tokens[:place])
            if history not in known:
                main.reset()
                known[history] = binned(sampler.distribution(history, main.forward(history)[-1]))
            bin_of, masses = known[history]
            if bin_of[tokens[place]] < 0:
                return 0.0  # the main model can never choose it
            excess[bin_of[tokens[place]]] += 1
            excess -= masses
            covariance += np.diag(masses) - np.outer(masses, masses)
    filled = np.flatnonzero(np.diag(covariance) > 5.0)[:-1]
    excess, covariance = excess[filled], covariance[np.ix_(filled, filled)]
    statistic = excess @ np.linalg.solve(covariance, excess)
    return float(chi2.sf(statistic, len(filled)))


@pytest.mark.parametrize("name", OPTION_SETS)
def test_samples_follow_the_main_models_distribution(pair, name):
    seed = list(OPTION_SETS).index(name)
    assert p_value(pair, OPTION_SETS[name], seed) > 0.001


@pytest.mark.parametrize(
    "broken",
    [
        lambda main_prob, draft_prob: min(1.0, draft_prob / main_prob) if main_prob else 0.0,
        lambda main_prob, draft_prob: 1.0 if main_prob > 0 else 0.0,
    ],
    ids=["ratio inverted", "any possible token"],
)
def test_the_test_notices_a_broken_acceptance_rule(pair, monkeypatch, broken):
    monkeypatch.setattr(verification, "acceptance_probability", broken)
    assert p_value(pair, OPTION_SETS["temperature 1"], seed=0) < 1e-6
