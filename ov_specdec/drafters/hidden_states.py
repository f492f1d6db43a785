"""Draft models that read the main model's hidden states: EAGLE-3 heads, and PARD-2."""

from collections.abc import Hashable, Sequence

import numpy as np

from ov_specdec.drafters.model import DraftCache, ModelDrafter
from ov_specdec.runner.base import ForwardOutput, HiddenStates, Runner
from ov_specdec.runner.cached_sequence import Passes
from ov_specdec.sampling.samplers import Sampler

MOST_RECOMPUTED = 32
"""Cached tokens that the main model reads again for their hidden states, so that the draft model
goes on with its own cache. It lacks the tokens of the last round of a text, which are fewer."""

SLACK = 256
"""Hidden states beyond those that are kept: moving all at each token would take longer."""


class LatestStates:
    """The hidden states of the latest tokens of a sequence, in order. Before the first: zeros.

    first: index of the first token that has one. most: maximum number that is kept.
    """

    def __init__(self, most: int, width: int) -> None:
        self._most = most
        self._rows: HiddenStates = np.zeros((1, width), np.float32)
        self.first = -1
        self.end = 0
        """The index after the last one."""

    def put(self, start: int, states: HiddenStates) -> None:
        """Set those of tokens from index `start` on, and drop later ones, and the oldest."""
        if not self.first <= start <= self.end:
            self.first = start
        end, num_before = start + len(states), start - self.first
        if num_before + len(states) > len(self._rows):
            first = max(self.first, end - self._most)
            kept = self._rows[first - self.first : num_before]
            size = min(2 * (end - first), self._most + SLACK)
            self._rows = np.empty((size, states.shape[1]), np.float32)
            self._rows[: len(kept)] = kept
            self.first, num_before, states = first, len(kept), states[len(kept) - (end - first) :]
        self._rows[num_before : num_before + len(states)] = states
        self.end = end

    def at(self, start: int, end: int) -> HiddenStates:
        """Those of the tokens at indices `start` to `end`."""
        return self._rows[start - self.first : end - self.first]


class HeadCache(DraftCache):
    """The cache of a draft model that reads each token with the hidden state of the one before.

    A head gives hidden states too: it reads its own with draft tokens. It has no entry of the first
    token, and accepted draft tokens are fed again, with the main model's. PARD-2 gives none: its
    mask tokens repeat the newest, and the first token has zeros.

    It begins where there are hidden states, which is after what the main model had cached. Entries
    depend on all tokens before, so these are in the namespace. Only as many hidden states are kept
    as its context has tokens.
    Source: Li et al. (EAGLE-3, arXiv 2503.01840), An et al. (PARD-2, arXiv 2605.08632).
    """

    def __init__(self, runner: Runner, namespace: Hashable = None) -> None:
        super().__init__(runner, namespace)
        self._takes_states = runner.hidden_size is not None
        self._start = int(self._takes_states)
        self._text_namespace = namespace
        self._is_placed = False
        self.states = LatestStates(runner.max_length, runner.feature_size or 0)
        # Of the current draft: hidden states of the token before it, and of its own.
        self._own: list[HiddenStates] = []
        # Cached tokens with hidden states of the main model.
        self._num_known = 0

    def reuse(self, tokens: Sequence[int]) -> int:
        """How many of these tokens, which the main model has cached, it need not read again."""
        self.free()  # what it cached may be of other states; `hold` finds the rest again
        if len(tokens) >= self._start:
            self._place(self._start, tokens)
        self._num_known = self.hold(tokens[self._start :])
        needed = self._start + self._num_known - 1
        if len(tokens) <= self.states.end:
            return len(tokens)
        if len(tokens) - needed <= MOST_RECOMPUTED:
            return max(needed, 0)
        self._start, self._is_placed = len(tokens) + 1, False
        self.reopen(self._text_namespace)  # `draft_room` places it
        return len(tokens)

    def draft_room(self, tokens: Sequence[int]) -> int:
        """Maximum number of draft tokens after `tokens`; at least one."""
        self.keep(self._num_known)
        self._own.clear()
        start, first = self._start, self.states.first + 1
        if first > start + self.length:
            start = first
        if self.room(len(tokens) - start) < 1:
            start = max(first, len(tokens) - max(self.runner.max_length // 2, 1))
        self._place(start, tokens)
        return self.room(len(tokens) - start)

    def advance(
        self, tokens: Sequence[int], draft_tokens: Sequence[int] = (), num_rows: int | None = None
    ) -> Passes[ForwardOutput]:
        """See `DraftCache`."""
        done = yield from super().advance(tokens, draft_tokens, num_rows)
        self._num_known = len(tokens) - self._start
        if self._hidden_states is not None:
            self._own.append(self._hidden_states[-1:])
        return done

    def features(self, start: int, end: int) -> HiddenStates:
        """Hidden states of the tokens before those in its places `start` to `end`."""
        begin, stop = self._start + start - 1, self._start + end - 1
        num_missing = max(stop - max(begin, self.states.end), 0)
        more = self._own[max(begin - self.states.end, 0) :][:num_missing]
        if not self._takes_states:
            more = [self.states.at(self.states.end - 1, self.states.end)] * num_missing
        return np.concatenate([self.states.at(begin, stop - num_missing), *more])

    def _place(self, start: int, tokens: Sequence[int]) -> None:
        """Begin with the token at index `start`, if it does not already."""
        if not self._is_placed or start != self._start:
            self._start, self._is_placed = start, True
            self.reopen((self._text_namespace, *tokens[:start]))


class HeadDrafter(ModelDrafter):
    """Drafts with such a model. Implements `Drafter` and `HiddenStatesReader`."""

    def __init__(self, cache: HeadCache, sampler: Sampler, min_confidence: float = 0.0) -> None:
        super().__init__(cache, sampler, min_confidence)
        self._head = cache

    def match_prefix(self, tokens: Sequence[int]) -> int:
        """See `HiddenStatesReader`."""
        return self._head.reuse(tokens)

    def observe(self, start: int, tokens: Sequence[int], hidden_states: HiddenStates) -> None:  # noqa: ARG002
        """See `HiddenStatesReader`."""
        self._head.states.put(start, hidden_states)
