"""A scripted model: a function from tokens to the next token, or to its logits."""

from collections.abc import Callable, Hashable, Sequence

import numpy as np

from ov_specdec.cache.block_pool import BlockPool
from ov_specdec.cache.block_table import BlockTable
from ov_specdec.runner.base import Logits, Runner, Span
from ov_specdec.runner.cached_sequence import CachedSequence

NextToken = Callable[[Sequence[int]], int | Logits]
HiddenState = Callable[[Sequence[int]], Sequence[float]]
"""From all tokens so far to the hidden state of the last one, [hidden_size]."""


class ScriptedSlot(BlockTable):
    """A block table that checks what it is asked for."""

    def __init__(self, model: "ScriptedModel", namespace: Hashable) -> None:
        super().__init__(model.pool, model.block_size, namespace)
        self.model = model

    def match_prefix(self, tokens: Sequence[int]) -> int:
        assert self.length == 0, "a sequence begins on an empty cache"
        return super().match_prefix(tokens)

    def rollback(self, length: int) -> None:
        super().rollback(length)
        self.model.rollbacks.append(length)

    def commit(self, tokens: Sequence[int], length: int) -> None:
        assert self.length >= min(length, len(tokens))
        super().commit(tokens, length)

    def free(self, tokens: Sequence[int] = ()) -> None:
        assert self.model.held(self)[: len(tokens)] == list(tokens)
        super().free(tokens)


class ScriptedSpare(BlockTable):
    """Rows that pad a pass; it holds no token."""

    def append(self, num_tokens: int) -> None:
        pass


class ScriptedModel(Runner):
    """A runner on real block tables. Its blocks hold the tokens that they were fed.

    Row i of a span is one-hot at the scripted successor of everything up to `tokens[i]`, or what
    the script returns in place of it, computed from what the blocks hold: if tokens were fed in the
    wrong place, or a block was written to that others share, the rows are wrong. So they are on the
    wrong side of the border.
    """

    max_draft_tokens = None
    bytes_per_token = 8
    static_shapes = frozenset()
    slot = ScriptedSlot

    def __init__(
        self,
        next_token: NextToken,
        *,
        vocab_size: int = 50,
        max_length: int = 1000,
        block_size: int = 4,
        num_blocks: int | None = None,
        border: int | None = None,
        hidden_state: HiddenState | None = None,
    ):
        self._next_token = next_token
        self._hidden_state = hidden_state
        self.hidden_size = len(hidden_state([0])) if hidden_state else None
        self.vocab_size = vocab_size
        self.max_length = max_length
        self.original_context = border
        self.block_size = block_size
        num_blocks = num_blocks or 16 * -(-max_length // block_size)
        self.pool = BlockPool(num_blocks, self._copy)
        self.spare = ScriptedSpare(self.pool, block_size)
        self.memory: dict[tuple[int, int], int] = {}
        """Tokens by block, and place in it."""
        self.generated: dict[tuple[int, int], bool] = {}
        """Whether each was fed as one that is not of a prompt."""
        self.sizes: list[list[int]] = []
        """Of each pass, the tokens of its spans."""
        self.rollbacks: list[int] = []
        self.fails_in: int | None = None
        """Passes after which one fails."""

    @property
    def passes(self) -> list[int]:
        """Number of tokens of each pass."""
        return [sum(sizes) for sizes in self.sizes]

    @property
    def num_free(self) -> int:
        return self.pool.num_available * self.block_size

    @property
    def capacity(self) -> int:
        return self.pool.size * self.block_size

    def limit(self, num_tokens: int, num_states: int = 0) -> None:
        self.pool.size = num_tokens // self.block_size

    def open(self, namespace: Hashable = None) -> "ScriptedSlot":
        return self.slot(self, namespace)

    def forward(self, spans: Sequence[Span]) -> list[Logits]:
        past = [span.slot.length for span in spans]
        self._slots_of(spans, BlockTable, self.pool)
        try:
            for span in spans:
                span.slot.append(len(span.tokens))
            self._may_fail()
        except BaseException:
            for span, length in zip(spans, past, strict=True):
                BlockTable.rollback(span.slot, length)
            raise
        self.sizes.append([len(span.tokens) for span in spans])
        return [self._rows(span, length) for span, length in zip(spans, past, strict=True)]

    def _copy(self, source: int, target: int) -> None:
        for offset in range(self.block_size):
            if (source, offset) in self.memory:
                self.memory[target, offset] = self.memory[source, offset]
                self.generated[target, offset] = self.generated.get((source, offset), False)

    def held(self, slot: BlockTable) -> list[int]:
        """The tokens that the blocks of a sequence hold."""
        return [self.memory[self._address(slot, place)] for place in range(slot.length)]

    def num_read(self, slot: BlockTable) -> int:
        """How many of the first tokens of a sequence were fed as a prompt, before all others."""
        generated = [self.generated[self._address(slot, place)] for place in range(slot.length)]
        assert generated == sorted(generated), "a prompt is read behind generated tokens"
        return generated.count(False)

    def _address(self, slot: BlockTable, place: int) -> tuple[int, int]:
        """The block of a token, and the place in it."""
        block, offset = divmod(place, self.block_size)
        return slot.blocks[block], offset

    def _may_fail(self) -> None:
        if self.fails_in is not None:
            self.fails_in -= 1
            if self.fails_in < 0:
                self.fails_in = None
                raise RuntimeError("the device is gone")

    def _rows(self, span: Span, past: int) -> Logits:
        if span.slot is self.spare:
            return np.zeros((0, self.vocab_size), np.float32)
        num_read = len(span.tokens) - span.num_generated
        assert num_read != 1 or not self.separates_generated, "a token of a prompt is left alone"
        for index, token in enumerate(span.tokens):
            address = self._address(span.slot, past + index)
            self.memory[address], self.generated[address] = token, index >= num_read
        held = self.held(span.slot)
        if span.hidden_states is not None:
            for place in range(past, len(held)):
                span.hidden_states[place - past] = self._hidden_state(held[: place + 1])
        ends = range(len(held) - span.num_rows + 1, len(held) + 1)
        has_long_rope = span.slot.has_long_rope
        return np.array([self._row(held[:end], has_long_rope) for end in ends], np.float32)

    def _row(self, tokens: Sequence[int], has_long_rope: bool) -> Logits:
        following = self._next_token(tokens)
        if self.original_context is not None and has_long_rope != (
            len(tokens) > self.original_context
        ):
            return np.arange(self.vocab_size) != following
        if isinstance(following, np.ndarray):
            return following
        return np.arange(self.vocab_size) == following


class Separating(ScriptedModel):
    """A model that feeds generated tokens in another way than those of a prompt."""

    separates_generated = True


def held_by(cache: CachedSequence) -> list[int]:
    """What the slot of a cached sequence holds, whatever the sequence thinks that it does."""
    assert isinstance(cache.runner, ScriptedModel)
    return cache.runner.held(cache._slot)


def counting(tokens: Sequence[int]) -> int:
    """Counts on, modulo 50."""
    return (tokens[-1] + 1) % 50


def mixed(tokens: Sequence[int], state: int, start: int = 0) -> int:
    """What `mixing` keeps of tokens, the first in place `start`, after those that gave `state`."""
    for place, token in enumerate(tokens, start):
        state = (state * 31 + token * (place + 7) + 3) % 1_000_003
    return state


def mixing(seed: int, vocab_size: int = 50) -> NextToken:
    """A successor that depends on every token and its place, so that no mix-up goes unnoticed."""

    def next_token(tokens: Sequence[int]) -> int:
        return mixed(tokens, seed) % vocab_size

    return next_token


MASK = 77
"""The mask token of scripted parallel drafts, outside their vocabulary."""


def in_parallel(next_token: NextToken) -> NextToken:
    """A parallel draft: after mask tokens, what follows its own tokens in their places."""

    def drafted(tokens: Sequence[int]) -> int:
        known = list(tokens)
        while known[-1] == MASK:
            known.pop()
        for _ in range(len(tokens) - len(known)):
            known.append(next_token(known))
        return next_token(known)

    return drafted


def table_model(weights: np.ndarray) -> Callable[[Sequence[int]], Logits]:
    """The next token's weights by the last token: row `tokens[-1]` of weights [vocab, vocab].

    Mask tokens, which are those outside the vocabulary, count as one token more each.
    """
    with np.errstate(divide="ignore"):
        logits = np.log(np.asarray(weights, np.float64)).astype(np.float32)
    size = len(logits)

    def next_logits(tokens: Sequence[int]) -> Logits:
        known = next(i for i, token in enumerate(reversed(tokens)) if token < size)
        return logits[(tokens[-1 - known] + known) % size]

    return next_logits


def wrong_at(next_token: NextToken, places: set[int]) -> NextToken:
    """The same successor, except for the tokens in the given places of the text."""

    def drafted(tokens: Sequence[int]) -> int:
        right = next_token(tokens)
        return (right + 1) % 50 if len(tokens) in places else right

    return drafted


class Snapshots(ScriptedModel):
    """A model that goes back to every fourth token only, as one with recurrent layers may."""

    class slot(ScriptedSlot):  # noqa: N801
        def rollback(self, length):
            super().rollback(length // 4 * 4)
