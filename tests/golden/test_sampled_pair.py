"""The embedded pair, sampled: thousands of speculative tokens against exact distributions."""

from contextlib import suppress

import numpy as np
import openvino as ov
import pytest
from scipy.stats import chi2

from ov_specdec import GenerationOptions
from ov_specdec.drafters.model import ModelDrafter
from ov_specdec.models.locate import embedded_folder
from ov_specdec.models.source import open_source
from ov_specdec.planning.draft_length import ConstantLength
from ov_specdec.runner.base import Runner
from ov_specdec.runner.cached_sequence import CachedSequence
from ov_specdec.sampling import noise, verification
from ov_specdec.sampling.from_options import make_samplers
from ov_specdec.sampling.noise import uniform
from tests.support.running import repeatable, rounds, sequence

NUM_SAMPLES = 400
NEW_TOKENS = 4
NUM_BINS = 12
BATCH = 128
VOCAB_SIZE = 4096
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
PROMPT = "for "  # here the draft is far enough from the main that a wrong sampler shows

# Each warper alone: `tests/unit/sampling/test_output_distribution.py`, which enumerates outputs.
OPTION_SETS = {
    "temperature 1": {"temperature": 1.0},
    "temperature 1.5": {"temperature": 1.5},
    "top_p": {"top_p": 0.8},
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


class Rows:
    """A model's logits after the prompt and some tokens more, computed in batches and kept."""

    def __init__(self, role, prompt):
        core = ov.Core()
        model = core.read_model(embedded_folder(role) / "openvino_model.xml")
        self._request = core.compile_model(model, "CPU", EXACT).create_infer_request()
        self._prompt = list(prompt)
        self._rows = {}
        self._missing = {()}

    def after(self, tail):
        """The logits after prompt and tail [vocab], or None: they are there after `compute`."""
        row = self._rows.get(tail)
        if row is None:
            self._missing.add(tail)
        return row

    def compute(self):
        """Compute the rows that were asked for in vain."""
        for length in {len(tail) for tail in self._missing}:
            tails = [tail for tail in self._missing if len(tail) == length]
            for start in range(0, len(tails), BATCH):
                self._compute(tails[start : start + BATCH])
        self._missing = set()

    def _compute(self, tails):
        self._request.reset_state()
        row = self._pass([self._prompt], past=0)[0, -1]
        if not tails[0]:
            self._rows[()] = row.copy()
            return
        # Every sequence of the batch goes on from the one in the cache, that of the prompt.
        rows = self._pass([list(tail) for tail in tails], past=len(self._prompt))
        for tail, own in zip(tails, rows[:, -1], strict=True):
            self._rows[tail] = own.copy()

    def _pass(self, tokens, past):
        """Logits [batch, tokens, vocab]."""
        batch, size = len(tokens), len(tokens[0])
        self._request.infer(
            {
                "input_ids": np.array(tokens),
                "attention_mask": np.ones((batch, past + size), np.int64),
                "position_ids": np.tile(np.arange(past, past + size), (batch, 1)),
                "beam_idx": np.zeros(batch, np.int32),
            }
        )
        return self._request.get_tensor("logits").data


class MissingRowError(Exception):
    """A row of logits is missing."""


class RowsModel(Runner):
    """A model and its only sequence, whose logits come from `Rows`; `MissingRowError` without."""

    max_length = 2048
    is_beyond = False

    def __init__(self, rows, prompt_length):
        self._rows = rows
        self._prompt_length = prompt_length
        self._text = []

    @property
    def length(self):
        return len(self._text)

    def open(self, namespace=None):
        return self

    def forward(self, spans):
        [span] = spans
        self._text = [*self._text, *span.tokens]
        ends = range(len(self._text) - span.num_rows + 1, len(self._text) + 1)
        rows = [self._rows.after(tuple(self._text[self._prompt_length : end])) for end in ends]
        if any(row is None for row in rows):
            raise MissingRowError
        return [np.array(rows)]

    def match_prefix(self, tokens):
        return 0

    def rollback(self, length):
        self._text = self._text[:length]

    def commit(self, tokens, length):
        pass

    def free(self, tokens=()):
        self._text = []


@pytest.fixture(scope="module")
def pair():
    prompt = open_source(embedded_folder("main")).tokenizer.encode(PROMPT)
    return Rows("main", prompt), Rows("draft", prompt), prompt


def unseeded(prompt, options, seed):
    """Samplers that draw as without a seed, and the same again."""
    return repeatable(seeded(prompt, options, None), seed)


def seeded(prompt, options, seed):
    """Samplers of a seed."""
    chosen = GenerationOptions(**options, seed=seed)
    return make_samplers(chosen, prompt_length=len(prompt), eos_token_ids=frozenset())


def sample(pair, options, make, seed):
    """One generation of NEW_TOKENS tokens, all but the first of them speculative.

    make: its samplers. None if it lacks a row of logits.
    """
    main, draft, prompt = pair
    samplers = make(prompt, options, seed)
    caches = [CachedSequence(RowsModel(rows, len(prompt))) for rows in (main, draft)]
    drafter = ModelDrafter(caches[1], samplers[1])
    length, policy = len(prompt) + NEW_TOKENS, ConstantLength(2)
    text = sequence(caches[0], prompt, length, drafter, policy, sampler=samplers[0])
    with suppress(MissingRowError):
        list(rounds(text))
        return text.tokens
    return None


def samples(pair, options, make, seed):
    """NUM_SAMPLES of them, each with a seed of its own.

    Those that lack a row of logits begin again once it is there, with the same seed, so that rows
    are computed many at a time.
    """
    main, draft, _ = pair
    seeds = np.random.default_rng(seed).integers(0, 2**32, NUM_SAMPLES).tolist()
    while seeds:
        main.compute()
        draft.compute()
        again = []
        for own_seed in seeds:
            found = sample(pair, options, make, own_seed)
            if found is None:
                again.append(own_seed)
            else:
                yield found
        seeds = again


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


def p_value(pair, options, seed, make=unseeded):
    """The chi-square test of all speculative tokens against the exact distributions.

    Bins are counted over all samples; each count is a sum of draws whose means and covariances are
    known, given the history of each. The last bin follows from the others and is left out.
    """
    main, _, prompt = pair
    sampler = seeded(prompt, options, None)[0]
    excess = np.zeros(NUM_BINS)
    covariance = np.zeros((NUM_BINS, NUM_BINS))
    known = {}
    for tokens in samples(pair, options, make, seed):
        for place in range(len(prompt) + 1, len(tokens)):
            history = tuple(tokens[:place])
            if history not in known:
                row = main.after(history[len(prompt) :])
                known[history] = binned(sampler.distribution(history, row))
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


@pytest.mark.parametrize(
    "name",
    [
        "temperature 1",
        *(pytest.param(name, marks=pytest.mark.deep) for name in [*OPTION_SETS][1:]),
    ],
)
def test_samples_follow_the_main_models_distribution(pair, name):
    seed = list(OPTION_SETS).index(name)
    assert p_value(pair, OPTION_SETS[name], seed) > 0.001


@pytest.mark.parametrize(
    "name", ["temperature 1", pytest.param("all together", marks=pytest.mark.deep)]
)
def test_over_seeds_samples_follow_it_too(pair, name):
    assert p_value(pair, OPTION_SETS[name], 0, seeded) > 0.001


@pytest.mark.deep
def test_seeds_whose_noise_is_too_small_are_noticed(pair, monkeypatch):
    monkeypatch.setattr(noise, "uniform", lambda *given: uniform(*given) ** 0.9)
    assert p_value(pair, OPTION_SETS["temperature 1"], 0, seeded) < 1e-6


@pytest.mark.parametrize(
    ("rule", "broken", "options"),
    [
        ("prefix_probability", lambda main, draft, ratio: 1.0, "temperature 1"),
        pytest.param(
            "acceptance_probability",
            lambda main_prob, draft_prob: 1.0 if main_prob > 0 else 0.0,
            "greedy draft",
            marks=pytest.mark.deep,
        ),
    ],
    ids=["any possible prefix", "any possible token"],
)
def test_the_test_notices_a_broken_rule(pair, monkeypatch, rule, broken, options):
    monkeypatch.setattr(verification, rule, broken)
    assert p_value(pair, OPTION_SETS[options], seed=0) < 1e-6
