"""The suffix drafter: what followed the longest match, in this sequence and in earlier outputs."""

from collections.abc import Callable, Iterable, Sequence

from ov_specdec.drafters.base import Declined, Proposal, Steps
from ov_specdec.drafters.references import References
from ov_specdec.drafters.suffix_index import Match, SuffixIndex
from ov_specdec.planning.draft_length import Plan, ask
from ov_specdec.runner.cached_sequence import CachedSequence
from ov_specdec.sampling.verification import Draft

SOURCE = "suffix"
EARLIER = "earlier"

EARLIER_WEIGHT = 0.5
"""What a token of a match in an earlier output counts beside one in the sequence itself.

On chat prompts that have nothing in common, the draft token after 4 to 7 tokens was right in 47 %
of the cases there and in 73 % here; on requests that are nearly the same, in 95 % and 76 %.
"""


class SuffixDrafter:
    """Drafts what most often followed the longest match of the sequence's end.

    Implements `Drafter` and needs no model. texts: are searched as if they stood before the prompt.
    earlier: gives the indexes of earlier outputs. tokens: what the sequence begins with, indexed at
    once. references: texts that it shares with other sequences; matches in them are as good as in
    its own. Of several matches the longest one drafts. Sources: SuffixDecoding (Oliaro et al.,
    arXiv 2411.04975), SAM-Decoding (Hu et al., arXiv 2411.10666).
    """

    sources: tuple[str, ...] = (SOURCE, EARLIER)
    caches: tuple[CachedSequence, ...] = ()

    def __init__(
        self,
        texts: Iterable[Sequence[int]] = (),
        earlier: Callable[[], Sequence[SuffixIndex]] = tuple,
        tokens: Sequence[int] = (),
        references: References | None = None,
    ) -> None:
        self._own = SuffixIndex()
        for text in texts:
            self._own.add(text)
        self._references = references  # kept, so that others find it
        self._shared = references.index if references else None
        self._earlier = earlier
        self._num_indexed = 0
        self._index(tokens)

    def propose(self, tokens: Sequence[int]) -> Steps[Proposal]:
        """The most frequent continuation, as long as the plan allows."""
        self._index(tokens)
        source, match = self._find(tokens)
        if match is None:
            return Proposal(Draft([]), source, Plan(0, "unmatched"))
        confidence = match.confidence
        plan = yield from ask(source, confidence)
        if plan.length == 0:
            declined = Declined(source, confidence, match.continuation(1)[0])
            return Proposal(Draft([]), source, plan, declined=declined)
        draft_tokens = match.continuation(plan.length)
        confidences = (confidence,) * len(draft_tokens)
        return Proposal(Draft(draft_tokens), source, plan, confidences, confidence)

    def _index(self, tokens: Sequence[int]) -> None:
        """Enter the tokens that have come since the last call."""
        self._own.extend(tokens[self._num_indexed :])
        self._num_indexed = len(tokens)

    def _find(self, tokens: Sequence[int]) -> tuple[str, Match | None]:
        """The longest match, and where it is."""
        best, source = self._own.find(tokens), SOURCE
        longest = best.length if best else 0.0
        known = self._shared.find(tokens) if self._shared else None
        if known is not None and known.length > longest:
            best, longest = known, known.length
        for index in self._earlier():
            match = index.find(tokens)
            if match is not None and EARLIER_WEIGHT * match.length > longest:
                best, source, longest = match, EARLIER, EARLIER_WEIGHT * match.length
        return source, best
