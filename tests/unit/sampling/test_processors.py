"""The logits processors, each against the one of that name in transformers."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from transformers.generation import logits_process as reference

from ov_specdec.runner.base import Logits
from ov_specdec.sampling.processors import (
    BadWords,
    ForcedBos,
    FrequencyPenalty,
    LogitBias,
    LogitsProcessor,
    MinNewTokens,
    NoRepeatNgram,
    PresencePenalty,
    RepetitionPenalty,
    SuppressTokens,
    _endings,
)

VOCAB = 12
PROMPT_LENGTH = 5
SEEDS = range(3)
BAD_WORDS = [[3], [4, 5], [1, 2], [0, 1, 2], [2, 2], [7, 8, 9, 10, 11, 0], [11]]


def random_row(seed: int) -> Logits:
    row = np.random.default_rng(seed).normal(0, 4, VOCAB).astype(np.float32)
    row[seed % VOCAB] = -np.inf
    return row


def random_history(seed: int) -> list[int]:
    """Few tokens, often repeated; as short as the prompt at the least."""
    rng = np.random.default_rng([seed, 1])
    return [int(token) for token in rng.integers(0, 4, PROMPT_LENGTH + 5 * seed)]


def by_transformers(
    processor: reference.LogitsProcessor, tokens: Sequence[int], row: Logits
) -> Logits:
    scores = processor(torch.tensor([tokens], dtype=torch.long), torch.from_numpy(row.copy())[None])
    result: Logits = scores[0].numpy()
    return result


def assert_same(
    processor: LogitsProcessor,
    expected: reference.LogitsProcessor,
    seed: int,
    history: Sequence[int] | None = None,
) -> None:
    tokens = random_history(seed) if history is None else history
    row = random_row(seed)
    result = processor(tokens, row)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, by_transformers(expected, tokens, row), rtol=0, atol=1e-5)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("penalty", [0.5, 1.0, 1.3, 10.0])
def test_repetition_penalty(penalty: float, seed: int) -> None:
    expected = reference.RepetitionPenaltyLogitsProcessor(penalty)
    assert_same(RepetitionPenalty(penalty), expected, seed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("presence", [-2.0, 0.0, 0.7])
@pytest.mark.parametrize("frequency", [-0.5, 0.0, 1.5])
def test_openai_penalties(presence: float, frequency: float, seed: int) -> None:
    tokens = random_history(seed)
    row = random_row(seed)
    expected = row.astype(np.float64)
    for token in range(VOCAB):
        count = tokens[PROMPT_LENGTH:].count(token)
        expected[token] -= presence * (count > 0) + frequency * count

    once = PresencePenalty(presence, PROMPT_LENGTH)(tokens, row)
    result = FrequencyPenalty(frequency, PROMPT_LENGTH)(tokens, once)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_logit_bias(seed: int) -> None:
    bias = {1: 2.5, 7: -100.0, 11: float("-inf")}
    expected = reference.SequenceBiasLogitsProcessor([[[token], bias[token]] for token in bias])
    assert_same(LogitBias(bias), expected, seed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("eos", [[], [3], [3, 11]])
@pytest.mark.parametrize("ending", [[], [4], [0, 1], [2], [1, 4], [7, 8, 9, 10, 11]])
def test_bad_words(ending: list[int], eos: list[int], seed: int) -> None:
    expected = reference.NoBadWordsLogitsProcessor(BAD_WORDS, eos or None)
    history = random_history(seed) + ending
    assert_same(BadWords(BAD_WORDS, frozenset(eos)), expected, seed, history)


@pytest.mark.parametrize("length", range(1, 8))
def test_bad_words_in_a_text_that_is_hardly_longer(length: int) -> None:
    words = [list(range(size)) for size in range(1, 8)]
    expected = reference.NoBadWordsLogitsProcessor(words)
    assert_same(BadWords(words), expected, 0, list(range(length)))


@pytest.mark.parametrize("seed", SEEDS)
def test_suppress_tokens(seed: int) -> None:
    assert_same(SuppressTokens([0, 5]), reference.SuppressTokensLogitsProcessor([0, 5]), seed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("min_new_tokens", [0, 1, 5, 6, 20])
def test_min_new_tokens(min_new_tokens: int, seed: int) -> None:
    expected = reference.MinNewTokensLengthLogitsProcessor(PROMPT_LENGTH, min_new_tokens, [2, 9])
    processor = MinNewTokens(min_new_tokens, PROMPT_LENGTH, frozenset({2, 9}))
    assert_same(processor, expected, seed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 6, 7, 40])
def test_no_repeat_ngram_size(size: int, seed: int) -> None:
    assert_same(NoRepeatNgram(size), reference.NoRepeatNGramLogitsProcessor(size), seed)


@pytest.mark.parametrize("history", [[1], [1, 1], [1, 2, 1], [1, 1, 1]])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_repeat_ngram_size_in_a_short_text(size: int, history: list[int]) -> None:
    assert_same(NoRepeatNgram(size), reference.NoRepeatNGramLogitsProcessor(size), 0, history)


@pytest.mark.parametrize("history", [[1], [2, 1], [1, 2, 1], random_history(3)])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_encoder_no_repeat_ngram_size(size: int, history: list[int]) -> None:
    for prompt in ([1], [2, 1, 3, 1, 4, 2, 1], random_history(4), random_history(3)):
        given = torch.tensor([prompt])
        expected = reference.EncoderNoRepeatNGramLogitsProcessor(size, given)
        assert_same(NoRepeatNgram(size, prompt), expected, 0, history)


@pytest.mark.parametrize("history", [[1], [2, 1]])
def test_forced_bos_token_id(history: list[int]) -> None:
    assert_same(ForcedBos(7), reference.ForcedBOSTokenLogitsProcessor(7), 0, history)


ALL: list[LogitsProcessor] = [
    NoRepeatNgram(1, [3]),
    ForcedBos(2),
    RepetitionPenalty(1.3),
    PresencePenalty(0.5, 2),
    FrequencyPenalty(0.5, 2),
    LogitBias({1: 2.0}),
    BadWords([[3], [1, 2]]),
    SuppressTokens([4]),
    MinNewTokens(10, 2, frozenset({0})),
    NoRepeatNgram(2),
]


@pytest.mark.parametrize("processor", ALL, ids=lambda processor: type(processor).__name__)
def test_the_row_that_was_given_is_left_as_it_was(processor: LogitsProcessor) -> None:
    row = np.linspace(-3, 3, VOCAB, dtype=np.float32)
    row.setflags(write=False)
    tokens = [1] if isinstance(processor, ForcedBos) else [1, 2, 1, 6, 1]
    result = processor(tokens, row)
    assert (result != row).any()
    assert np.array_equal(processor(tokens, row), result), "the same again for the same arguments"


@pytest.mark.parametrize("processor", ALL, ids=lambda processor: type(processor).__name__)
def test_a_history_that_is_an_array_gives_the_same(processor: LogitsProcessor) -> None:
    row = random_row(3)
    tokens = [1, 2, 1, 6, 1]
    array: Sequence[int] = np.array(tokens)  # type: ignore[assignment]
    assert np.array_equal(processor(array, row), processor(tokens, row))


class Counted(Sequence[int]):
    """Token ids that count how often they are read."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids, self.num_read = ids, 0

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        self.num_read += 1
        return self.ids[index]


def test_options_are_read_once_for_all_rows() -> None:
    ids = Counted([4, 5])
    suppress = SuppressTokens(ids)
    suppress([1], random_row(0))
    num_read = ids.num_read
    assert num_read > 0
    assert suppress([1, 2], random_row(1))[5] == -np.inf
    assert ids.num_read == num_read
    words = BadWords([[1, 4], [1, 5]])
    assert (words([0, 1], random_row(0))[4:6] == -np.inf).all()
    assert all(isinstance(last, np.ndarray) for last in words._endings[1].values())


class Watched(np.ndarray):
    """An array that counts how often a part of it is taken."""

    num_taken = 0

    def __getitem__(self, key):  # type: ignore[no-untyped-def]
        Watched.num_taken += 1
        return super().__getitem__(key)


def test_a_search_ends_where_nothing_matches() -> None:
    text = np.arange(1000).view(Watched)
    assert len(_endings(text, np.array([5, *[6] * 200]))) == 0
    assert 0 < Watched.num_taken < 6
