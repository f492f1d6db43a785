"""A grammar as the last processor: masks of what may follow, and the tokens that must follow."""

from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from itertools import takewhile
from time import thread_time
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ov_specdec.errors import DeadEndError, Option, OptionError
from ov_specdec.options.generation import MAX_REQUESTED_LENGTH
from ov_specdec.sampling.logits import Logits
from ov_specdec.sampling.warpers import Mask

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

T = TypeVar("T")

SPECIAL_BYTE = b"\xff"
"""In llguidance's bytes, the beginning of a special token."""


USUAL = 0.002
"""Seconds of a mask that do not count as slow. Those of schemas take 0.02 to 0.2 ms on average."""

REMEDY = ": let a text fit it in fewer ways, and use longer literals"


class Grammar:
    """Forbids tokens after which no text fits a grammar. Implements `Follower`.

    Draft tokens are consumed for the rows after them, and left out when a row needs another text.
    Masks are kept, so that drafting and verification share them.

    make: a matcher of an empty text, which keeps its first error. tokenizer: that of its tokens.
    ends: those that end this text, and are never consumed.
    prompt_length: tokens of the sequence that are not output. num_others: first tokens of the
    output that are not part of the grammar's text. name: of the option that gives the grammar.
    """

    def __init__(
        self,
        make: Callable[[], "LLMatcher"],
        tokenizer: "LLTokenizer",
        ends: Set[int],
        prompt_length: int,
        num_others: int = 0,
        name: str = "grammar",
    ) -> None:
        self._make = make
        self._base = make()
        """It has accepted tokens only, and is copied after a detour: one that was rolled back from
        one form of an object to another had the masks of the first (llguidance 1.9)."""
        self._matcher = self._base.deep_copy()
        self._tokenizer, self._ends = tokenizer, ends
        self._start = prompt_length + num_others
        self._num_others = num_others
        self._consumed: list[int] = []
        """Accepted tokens, and draft tokens after them."""
        self._num_accepted = 0
        self._name = name
        self._seconds = 0.0
        self._masks: dict[int, Mask] = {}
        """By the number of consumed tokens before the row."""

    def __call__(self, tokens: Sequence[int], logits: Logits) -> Logits:
        """The row with -inf at tokens that do not fit."""
        if len(tokens) < self._start:
            return logits
        return np.where(self._mask(tokens)[: len(logits)], logits, -np.inf)

    def follow(self, tokens: Sequence[int]) -> None:
        """Take accepted tokens, the last of which may end the text."""
        own, self._num_others = tokens[self._num_others :], 0
        new = [*takewhile(lambda token: token not in self._ends, own)]
        before = self._num_accepted
        # Those of the last round may still be asked for, for log-probabilities.
        self._masks = {n: mask for n, mask in self._masks.items() if n >= before}
        self._agree(new)
        self._base.consume_tokens(new)
        self._num_accepted += len(new)
        self._consume(new[len(self._consumed) - before :])

    def forced(self) -> list[int]:
        """The tokens that must follow the accepted ones, none of which ends the text."""
        if self._num_others:
            return []
        self._rollback(self._num_accepted)
        some = self._forced()[:MAX_REQUESTED_LENGTH]  # other requests wait for a constant's
        return [*takewhile(lambda token: token not in self._ends, some)]

    def num_fitting(self, tokens: Sequence[int], drafted: Sequence[int]) -> int:
        """How many draft tokens after `tokens` fit, up to one that ends the text."""
        history = list(tokens)
        with suppress(DeadEndError):
            for token in drafted:
                if not self._mask(history)[token]:
                    break
                history.append(token)
                if token in self._ends:
                    break
        return len(history) - len(tokens)

    def take_seconds(self) -> float:
        """Seconds that slow masks took since the last call."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def too_slow(self) -> OptionError:
        """The error of a generation whose masks keep others waiting."""
        return OptionError(
            f"{{option}} is too ambiguous: its masks take longer than passes of the model{REMEDY}",
            option=Option(self._name),
        )

    def accepts(self) -> bool:
        """Whether the accepted text is complete."""
        self._rollback(self._num_accepted)
        return self._matcher.is_accepting() and not self._matcher.is_error()

    def _mask(self, tokens: Sequence[int]) -> Mask:
        """Which tokens fit after a history."""
        length = len(tokens) - self._start
        self._agree(tokens[self._start + self._num_accepted :])
        if (mask := self._masks.get(length)) is None:
            self._rollback(length)
            self._consume(tokens[self._start + len(self._consumed) :])
            begin = thread_time()  # of a processor, for which this thread may have to wait
            bits = np.frombuffer(self._ask(lambda matcher: matcher.compute_bitmask()), np.uint8)
            self._seconds += max(thread_time() - begin - USUAL, 0.0)
            mask = self._masks[length] = np.unpackbits(bits, bitorder="little").view(np.bool_)
            if self._tokenizer.is_special_token(int(mask.argmax())) and (new := self._forced()):
                mask[:] = False
                mask[new[0]] = True
            mask[self._tokenizer.eos_tokens] = False
            if self._matcher.is_accepting():
                mask[[*self._ends]] = True
        return mask

    def _forced(self) -> list[int]:
        """The tokens that must follow, without special ones that a literal spells.

        llguidance gives those and then refuses them, but takes others with the same text.
        """
        forced = self._ask(lambda matcher: matcher.compute_ff_tokens())
        special = [n for n, token in enumerate(forced) if self._tokenizer.is_special_token(token)]
        text = self._matcher.compute_ff_bytes() if special else b""
        if len(special) == text.count(SPECIAL_BYTE):
            return forced
        end = special[0] or text.startswith(SPECIAL_BYTE)
        return forced[:end] or self._tokenizer.greedy_tokenize(text.decode(errors="ignore"))[:1]

    def _agree(self, tokens: Sequence[int]) -> None:
        """Roll back consumed tokens after the accepted ones that are not these."""
        consumed = self._consumed[self._num_accepted :]
        for place, (own, other) in enumerate(zip(consumed, tokens, strict=False)):
            if own != other:
                self._rollback(self._num_accepted + place)
                break

    def _rollback(self, length: int) -> None:
        surplus = len(self._consumed) - length
        if surplus > 0:
            del self._consumed[length:]
            self._masks = {n: mask for n, mask in self._masks.items() if n <= length}
            if length >= self._num_accepted:
                self._matcher = self._base.deep_copy()
                self._matcher.consume_tokens(self._consumed[self._num_accepted :])
            if length < self._num_accepted or self._matcher.is_error():
                self._renew()

    def _consume(self, tokens: Sequence[int]) -> None:
        if new := list(tokens):
            self._ask(lambda matcher: matcher.consume_tokens(new))
            self._consumed += new

    def _ask(self, question: Callable[["LLMatcher"], T]) -> T:
        """A matcher's answer; after an error that of a fresh one, which lacks rejected detours."""
        answer = question(self._matcher)
        if self._matcher.is_error():
            self._renew()
            answer = question(self._matcher)
        if self._matcher.is_error():
            reason = self._matcher.get_error().partition("\n<")[0]
            self._rollback(self._num_accepted)  # a draft model's detour need not end the request
            raise DeadEndError(
                f"{{option}} is too ambiguous or large for the text so far ({reason}){REMEDY}",
                option=Option(self._name),
            )
        return answer

    def _renew(self) -> None:
        self._matcher = self._make()
        self._matcher.consume_tokens(self._consumed[: self._num_accepted])
        if len(self._consumed) >= self._num_accepted:  # copies share the limits that were reached
            self._base = self._matcher.deep_copy()
        self._matcher.consume_tokens(self._consumed[self._num_accepted :])
