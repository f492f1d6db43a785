"""Logits processors: penalties, bans, and the user's own functions.

A processor takes the tokens so far (prompt and output) and one row of logits [vocab]. It returns a
new row, and never writes to its argument. The result depends on the arguments alone: in
verification a row gets the same history as in plain decoding. A processor with state of the text
is a `Follower` too. `make_processors` (`samplers.py`) has their order.

`GenerationOptions` checks valid ranges. A token id is valid from 0 to vocab - 1.
Source: the processors of transformers (transformers/generation/logits_process.py).
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ov_specdec.errors import LogitsError, OptionError
from ov_specdec.sampling.logits import Logits

LogitsProcessor: TypeAlias = Callable[[Sequence[int], Logits], Logits]
"""From the tokens so far and a row of logits [vocab] to a row of logits [vocab]."""


@runtime_checkable
class Follower(Protocol):
    """A processor that keeps state of one text, for example of a grammar.

    `follow` passes it the accepted tokens only. Histories in its calls begin with those, and may
    add draft tokens: it computes their state from the accepted one, and needs no rollback.
    """

    def follow(self, tokens: Sequence[int]) -> None:
        """Take accepted tokens of the output, which follow those of the last call."""


@dataclass(frozen=True)
class RepetitionPenalty:
    """Divides a positive logit of every token that has occurred, and multiplies a negative one.

    penalty: above 1 makes repetition less likely. The prompt counts too. Source: CTRL
    (arXiv 1909.05858).
    """

    penalty: float

    def __call__(self, tokens: Sequence[int], logits: Logits) -> Logits:
        seen = _as_ids(tokens)
        scores, result = logits[seen], logits.copy()
        # A token that occurs twice is written twice, but penalized once.
        result[seen] = np.where(scores < 0, scores * self.penalty, scores / self.penalty)
        return result


@dataclass(frozen=True)
class OccurrencePenalty:
    """Lowers the logits of tokens that have occurred after the prompt.

    presence: subtracted once. frequency: subtracted as many times as the token has occurred.
    Source: the OpenAI API's presence_penalty and frequency_penalty.
    """

    presence: float
    frequency: float
    prompt_length: int

    def __call__(self, tokens: Sequence[int], logits: Logits) -> Logits:
        generated, counts = np.unique(_as_ids(tokens[self.prompt_length :]), return_counts=True)
        result = logits.copy()
        result[generated] -= self.presence
        result[generated] -= self.frequency * counts
        return result


@dataclass(frozen=True)
class LogitBias:
    """Adds a bias to the logits of some tokens; -inf forbids one.

    Source: the OpenAI API's logit_bias; `SequenceBiasLogitsProcessor` with sequences of one token.
    """

    bias: Mapping[int, float]

    def __call__(self, tokens: Sequence[int], logits: Logits) -> Logits:  # noqa: ARG002
        ids, values = self._arrays
        result = logits.copy()
        result[ids] += values
        return result

    @cached_property
    def _arrays(self) -> tuple[NDArray[np.int64], Logits]:
        return _as_ids([*self.bias]), np.array([*self.bias.values()], np.float32)


@dataclass(frozen=True)
class BadWords:
    """Forbids the last token of a bad word after the tokens that precede it in the bad word.

    eos_token_ids: cannot be bad words by themselves. Source: `NoBadWordsLogitsProcessor`, and with
    words of one token `SuppressTokensLogitsProcessor`.
    """

    bad_words_ids: Sequence[Sequence[int]]
    eos_token_ids: Set[int] = frozenset()

    def __call__(self, tokens: Sequence[int], logits: Logits) -> Logits:
        result = logits.copy()
        for length, endings in self._endings.items():
            # As in transformers, a word applies once the text is at least as long as it.
            if length == 0 or length < len(tokens):
                start = tuple(tokens[len(tokens) - length :])
                if (banned := endings.get(start)) is not None:
                    result[banned] = -np.inf
        return result

    @cached_property
    def _endings(self) -> dict[int, dict[tuple[int, ...], NDArray[np.int64]]]:
        """By length of the preceding tokens: the last tokens for each of them."""
        endings: dict[int, dict[tuple[int, ...], list[int]]] = {}
        for *start, last in self.bad_words_ids:
            if start or last not in self.eos_token_ids:
                endings.setdefault(len(start), {}).setdefault(tuple(start), []).append(last)
        return {
            length: {start: _as_ids(last) for start, last in starts.items()}
            for length, starts in endings.items()
        }


@dataclass(frozen=True)
class MinNewTokens:
    """Forbids end-of-sequence tokens until there are enough tokens after the prompt.

    Source: `MinNewTokensLengthLogitsProcessor`.
    """

    min_new_tokens: int
    prompt_length: int
    eos_token_ids: Set[int]

    def __call__(self, tokens: Sequence[int], logits: Logits) -> Logits:
        if len(tokens) - self.prompt_length >= self.min_new_tokens:
            return logits
        return _forbid(logits, _as_ids([*self.eos_token_ids]))


@dataclass(frozen=True)
class NoRepeatNgram:
    """Forbids every token that would complete an n-gram that prompt and output already hold.

    prompt_ids: only those of a prompt; of an encoder-decoder model, its source. None: of both.
    Source: `NoRepeatNGramLogitsProcessor`, `EncoderNoRepeatNGramLogitsProcessor`.
    """

    size: int
    prompt_ids: Sequence[int] | None = None

    def __call__(self, tokens: Sequence[int], logits: Logits) -> Logits:
        if len(tokens) < self.size - 1:
            return logits
        text = _as_ids(tokens) if self.prompt_ids is None else self._prompt
        return _forbid(logits, _endings(text, tokens[len(tokens) - self.size + 1 :]))

    @cached_property
    def _prompt(self) -> NDArray[np.int64]:
        return _as_ids(self.prompt_ids or ())


@dataclass(frozen=True)
class ForcedBos:
    """Forbids all tokens but one after a text of a single token.

    Source: `ForcedBOSTokenLogitsProcessor`.
    """

    forced_bos_token_id: int

    def __call__(self, tokens: Sequence[int], logits: Logits) -> Logits:
        if len(tokens) != 1:
            return logits
        result = np.full_like(logits, -np.inf)
        result[self.forced_bos_token_id] = 0.0
        return result


def _endings(text: NDArray[np.int64], start: Sequence[int]) -> NDArray[np.int64]:
    num_ngrams = len(text) - len(start)
    if num_ngrams < 1:
        return text[:0]
    matches = np.ones(num_ngrams, dtype=np.bool_)
    for offset, token in enumerate(start):
        matches &= text[offset : offset + num_ngrams] == token
        if not matches.any():
            break
    return text[len(start) :][matches]


def _as_ids(tokens: Sequence[int]) -> NDArray[np.int64]:
    """Token ids as an index array, which may be empty."""
    return np.asarray(tokens, dtype=np.int64)


def _forbid(logits: Logits, ids: NDArray[np.int64]) -> Logits:
    result = logits.copy()
    result[ids] = -np.inf
    return result


@dataclass(frozen=True)
class UserLogitsProcessor:
    """A user's function as a processor, with a check of its result."""

    function: Callable[..., Any]

    def __call__(self, tokens: Sequence[int], logits: Logits) -> Logits:
        """The function's row; `OptionError` if it is none, or if the function misses an index.

        Raises `LogitsError` if it makes NaN, or more than float32 can hold, of other logits.
        """
        try:  # with copies, because the function may write to its arguments
            row = np.asarray(self._run(list(tokens), logits.copy()))
        except IndexError as error:
            raise OptionError(
                f"{{logits_processor}} {self.function!r} failed ({error}): it gets a list of "
                f"token ids and one row of logits of shape {logits.shape}, without a batch axis",
                logits_processor=...,
            ) from error
        if row.shape != logits.shape or not np.issubdtype(row.dtype, np.floating):
            raise OptionError(
                f"{{logits_processor}} {self.function!r} returned {row.dtype} of shape "
                f"{row.shape}: it must return a row of logits of shape {logits.shape}",
                logits_processor=...,
            )
        peak, most = row.max(), np.finfo(np.float32).max
        if logits.max() <= most and not peak <= most:
            raise LogitsError(
                f"{{logits_processor}} {self.function!r} returned {peak}: it must return numbers "
                "or -inf",
                logits_processor=...,
            )
        return row

    @cached_property
    def _run(self) -> Callable[..., Any]:
        is_of_transformers = _is_of_transformers(self.function)
        return partial(_call, self.function) if is_of_transformers else self.function

    def follow(self, tokens: Sequence[int]) -> None:
        """Pass accepted tokens to a function that keeps state of the text."""
        if isinstance(self.function, Follower):
            self.function.follow(list(tokens))


def _is_of_transformers(function: Callable[..., Any]) -> bool:
    """Whether it is a `transformers.LogitsProcessor`, without importing transformers."""
    names = {(each.__module__, each.__name__) for each in type(function).__mro__}
    return ("transformers.generation.logits_process", "LogitsProcessor") in names


def _call(processor: Callable[..., Any], tokens: Sequence[int], logits: Logits) -> Any:
    """Call a processor of transformers, with torch tensors that have a batch axis."""
    import torch  # installed, since the processor needs it

    ids = torch.tensor([list(tokens)], dtype=torch.long)
    return processor(ids, torch.from_numpy(logits.copy())[None])[0].numpy()
