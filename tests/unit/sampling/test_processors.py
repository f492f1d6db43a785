"""The logits processors, each against the one of that name in transformers."""

import numpy as np
import pytest
import torch
from transformers.generation import logits_process as reference

from ov_specdec.runner.base import Logits
from ov_specdec.sampling.processors import (
    BadWords,
    ForcedBos,
    LogitBias,
    LogitsProcessor,
    MinNewTokens,
    NoRepeatNgram,
    OccurrencePenalty,
    RepetitionPenalty,
)

VOCAB = 12
PROMPT_LENGTH = 5
BAD_WORDS = [[3], [4, 5], [1, 2], [0, 1, 2], [2, 2], [7, 8, 9, 10, 11, 0], [11]]


def random_row(seed: int) -> Logits:
    row = np.random.default_rng(seed).normal(0, 4, VOCAB).astype(np.float32)
    row[seed % VOCAB] = -np.inf
    return row


def random_history(seed: int) -> list[int]:
    """Few tokens, often repeated; as short as the prompt at the least."""
    rng = np.random.default_rng([seed, 1])
    return [int(token) for token in rng.integers(0, 4, PROMPT_LENGTH + 5 * seed)]


ENDINGS = ([], [4], [0, 1], [2], [1, 4], [7, 8, 9, 10, 11])
HISTORIES = [
    *([*random_history(seed), *ending] for seed in range(3) for ending in ENDINGS),
    *([1], [1, 1], [2, 1], [1, 2, 1], [1, 1, 1], *(list(range(size)) for size in range(1, 8))),
]
WORDS = [list(range(size)) for size in range(1, 8)]
BIAS = {1: 2.5, 7: -100.0, 11: float("-inf")}
PROMPTS = ([1], [2, 1, 3, 1, 4, 2, 1], random_history(4), random_history(3))
CASES: list[tuple[LogitsProcessor, reference.LogitsProcessor]] = [
    *(
        (RepetitionPenalty(penalty), reference.RepetitionPenaltyLogitsProcessor(penalty))
        for penalty in (0.5, 1.0, 1.3, 10.0)
    ),
    (
        LogitBias(BIAS),
        reference.SequenceBiasLogitsProcessor([[[token], BIAS[token]] for token in BIAS]),
    ),
    *(
        (BadWords(words, frozenset(eos)), reference.NoBadWordsLogitsProcessor(words, eos or None))
        for words in (BAD_WORDS, WORDS)
        for eos in ([], [3], [3, 11])
    ),
    (BadWords([[0], [5]]), reference.SuppressTokensLogitsProcessor([0, 5])),
    *(
        (
            MinNewTokens(number, PROMPT_LENGTH, frozenset({2, 9})),
            reference.MinNewTokensLengthLogitsProcessor(PROMPT_LENGTH, number, [2, 9]),
        )
        for number in (0, 1, 5, 6, 20)
    ),
    *(
        (NoRepeatNgram(size), reference.NoRepeatNGramLogitsProcessor(size))
        for size in (1, 2, 3, 4, 6, 7, 40)
    ),
    *(
        (
            NoRepeatNgram(size, prompt),
            reference.EncoderNoRepeatNGramLogitsProcessor(size, torch.tensor([prompt])),
        )
        for size in (1, 2, 3, 4)
        for prompt in PROMPTS
    ),
    (ForcedBos(7), reference.ForcedBOSTokenLogitsProcessor(7)),
]


@pytest.mark.parametrize(("processor", "expected"), CASES)
def test_rows_are_those_of_transformers(
    processor: LogitsProcessor, expected: reference.LogitsProcessor
) -> None:
    for seed, history in enumerate(HISTORIES):
        row, ids = random_row(seed), torch.tensor([history])
        result = processor(history, row)
        assert result.dtype == np.float32
        scores = expected(ids, torch.from_numpy(row.copy())[None])[0].numpy()
        np.testing.assert_allclose(result, scores, rtol=0, atol=1e-5, err_msg=str(history))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("presence", [-2.0, 0.0, 0.7])
@pytest.mark.parametrize("frequency", [-0.5, 0.0, 1.5])
def test_openai_penalties(presence: float, frequency: float, seed: int) -> None:
    tokens = random_history(seed)
    row = random_row(seed)
    expected = row.astype(np.float64)
    for token in range(VOCAB):
        count = tokens[PROMPT_LENGTH:].count(token)
        expected[token] -= presence * (count > 0) + frequency * count

    result = OccurrencePenalty(presence, frequency, PROMPT_LENGTH)(tokens, row)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5)


ALL: list[LogitsProcessor] = [
    NoRepeatNgram(1, [3]),
    ForcedBos(2),
    RepetitionPenalty(1.3),
    OccurrencePenalty(0.5, 0.5, 2),
    LogitBias({1: 2.0}),
    BadWords([[3], [1, 2]]),
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
    assert np.array_equal(processor(np.array(tokens), row), result)
