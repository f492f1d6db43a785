"""Texts that an output is expected to repeat, indexed once for all sequences."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ov_specdec.drafters.suffix_index import SuffixIndex


@dataclass(frozen=True, eq=False)
class References:
    """Reference texts. texts: the ids of each."""

    texts: Sequence[Sequence[int]] = ()

    @cached_property
    def index(self) -> SuffixIndex:
        """The index of all texts, built on first use and constant afterwards."""
        index = SuffixIndex()
        for text in self.texts:
            index.add(text)
        return index
