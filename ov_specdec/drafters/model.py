"""Drafts with a smaller model, one token in a pass, or all with one that was trained for it."""

from collections.abc import Sequence

import numpy as np

from ov_specdec.drafters.base import Proposal
from ov_specdec.errors import DeadEndError, LogitsError
from ov_specdec.planning.acceptance import MODEL
from ov_specdec.planning.plan import Offer, Plan
from ov_specdec.runner.base import ForwardOutput
from ov_specdec.runner.cached_sequence import CachedSequence, Passes
from ov_specdec.sampling.logits import Logits, check_row
from ov_specdec.sampling.samplers import Chosen, Sampler
from ov_specdec.sampling.verification import Draft


class DraftCache(CachedSequence):
    """A draft model's cache of a sequence, or of its last tokens if the context is shorter.

    When the context is full, it restarts with the latest half: each token is fed twice at most, and
    of a long prompt only half a context is fed. A shorter context can only lower acceptance, since
    all draft tokens are verified. Source: drafting from a window of the KV cache, Sun et al.
    (TriForce, arXiv 2404.11912).
    """

    _start = 0

    def draft_room(self, tokens: Sequence[int]) -> int:
        """Maximum number of draft tokens after `tokens`; at least one."""
        if self.room(len(tokens) - self._start) < 1:
            self._start = len(tokens) - max(self.runner.max_length // 2, 1)
            self.free()  # the tokens that follow are another sequence
        return self.room(len(tokens) - self._start)

    def num_unread(self, tokens: Sequence[int]) -> int:
        """About how many of these tokens it has to read before it drafts; at least one."""
        if self.room(len(tokens) - self._start) < 1:  # so that `draft_room` restarts
            return max(self.runner.max_length // 2, 1)
        return max(self.num_missing(tokens[self._start :] if self._start else tokens), 1)

    def advance(
        self, tokens: Sequence[int], draft_tokens: Sequence[int] = (), num_rows: int | None = None
    ) -> Passes[ForwardOutput]:
        """See `CachedSequence`. tokens: of the last `draft_room`, or a prefix of them."""
        latest = tokens[self._start :] if self._start else tokens
        return super().advance(latest, draft_tokens, num_rows)


class ModelDrafter:
    """Drafts with a draft model. Implements `Drafter`.

    It takes one pass per draft token, or, with a mask token, one for all. Once the model gives
    logits that are no distribution, such as NaN, it drops its KV cache and drafts nothing more.

    sampler: chooses draft tokens from its logits. min_confidence: drafting ends after a draft token
    with a lower probability.
    Source: Leviathan et al. (arXiv 2211.17192), Chen et al. (arXiv 2302.01318); for parallel
    drafts An et al. (PARD, arXiv 2504.18583).
    """

    sources: tuple[str, ...] = (MODEL,)

    def __init__(self, cache: DraftCache, sampler: Sampler, min_confidence: float = 0.0) -> None:
        self.caches: tuple[CachedSequence, ...] = (cache,)
        self._cache = cache
        self._sampler = sampler
        self._min_confidence = min_confidence
        self._mask_token = cache.runner.mask_token

    def offers(self, tokens: Sequence[int]) -> list[Offer]:
        """An offer, until the model fails."""
        if not self.caches:
            return []
        num_unread = self._cache.num_unread(tokens)
        return [Offer(MODEL, takes_one_pass=self._mask_token is not None, num_unread=num_unread)]

    def propose(self, tokens: Sequence[int], plan: Plan) -> Passes[Proposal]:
        """As many draft tokens as planned and as fit the draft model's context."""
        history, draft_tokens = list(tokens), list[int]()
        probs, confidences, pass_tokens = [], [], 0
        rows: list[Logits] = []
        # Each pass feeds one more token, after which the cache must still have room.
        length = min(plan.length, self._cache.draft_room(tokens))
        while len(draft_tokens) < length:
            if not rows:
                fed = yield from self._next_rows(tokens, draft_tokens, length)
                rows, pass_tokens = [*fed.logits], pass_tokens + fed.num_tokens
            row = rows.pop(0)
            try:
                chosen = self._sampler.sample(history, row)
                if self._min_confidence:
                    confidences.append(confidence(row, chosen))
            except DeadEndError:
                break  # a dead end, which the main model may never reach
            except LogitsError:
                self._cache.discard()
                self.caches = ()
                break
            history.append(chosen.token)
            draft_tokens.append(chosen.token)
            if chosen.drawn_from is not None:
                probs.append(chosen.drawn_from)
            if self._min_confidence and confidences[-1] < self._min_confidence:
                break
            if chosen.token in self._sampler.ends:
                break
        draft = Draft(draft_tokens, probs or None)
        return Proposal(draft, tuple(confidences), pass_tokens, has_failed=not self.caches)

    def _next_rows(
        self, tokens: Sequence[int], draft_tokens: Sequence[int], length: int
    ) -> Passes[ForwardOutput]:
        """A pass for the row of the next draft token; with a mask token, of all that are missing.

        It then feeds mask tokens in the places of all draft tokens but the last. So no row depends
        on a drafted token, but each is sampled with those before in the history. The next pass
        rolls the mask tokens back. length: of the whole draft.
        """
        mask = self._mask_token
        if mask is None:
            # If the last round accepted all, the first pass also feeds the last of them.
            return (yield from self._cache.advance(tokens, draft_tokens, 1))
        masks = [mask] * (length - len(draft_tokens) - 1)
        done = yield from self._cache.advance(tokens, [*draft_tokens, *masks], len(masks) + 1)
        done.logits[:, mask : mask + 1] = -np.inf  # it is no text
        return done


def confidence(row: Logits, chosen: Chosen) -> float:
    """A draft model's probability of its draft token: the sampler's, or by its row [vocab].

    Raises `LogitsError` for a row that gives no distribution.
    """
    if chosen.confidence is not None:
        return chosen.confidence
    if chosen.drawn_from is not None:
        return chosen.drawn_from.prob(chosen.token)
    weights = np.exp(row - check_row(row))
    return float(weights[chosen.token] / weights.sum())
