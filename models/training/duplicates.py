"""Near-duplicate files: found by MinHash, so that a copied module is learnt from once only."""

import re
import zlib

from datasketch import MinHash, MinHashLSH

PERMUTATIONS = 64
SIMILARITY = 0.7
SHINGLE = 5
WORDS = re.compile(r"\w+|[^\w\s]")
COMMENTS = re.compile(r"#.*")


def shingles(text: str) -> set[bytes]:
    """Runs of SHINGLE words or signs of a text without its comments and white space."""
    words = WORDS.findall(COMMENTS.sub("", text))
    last = max(1, len(words) - SHINGLE + 1)
    return {" ".join(words[start : start + SHINGLE]).encode() for start in range(last)}


class Seen:
    """The texts kept so far; tells whether another one is new.

    Broder, "On the resemblance and containment of documents" (1997): the share of equal minima
    under PERMUTATIONS hashes estimates the Jaccard similarity of two sets of shingles. A text is
    no longer new where that of a kept one is about SIMILARITY or more.
    """

    def __init__(self) -> None:
        self._index = MinHashLSH(threshold=SIMILARITY, num_perm=PERMUTATIONS)
        self._empty = MinHash(num_perm=PERMUTATIONS, hashfunc=zlib.crc32)
        self.kept = 0

    def add(self, text: str) -> bool:
        """Keep ``text`` if it is new, and say whether it was."""
        sketch = self._empty.copy()
        sketch.update_batch(shingles(text))
        if self._index.query(sketch):
            return False
        self._index.insert(self.kept, sketch)
        self.kept += 1
        return True
