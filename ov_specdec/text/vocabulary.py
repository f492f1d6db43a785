"""The most common tokens of a tokenizer, by the order of its merges."""

from ov_specdec.errors import Option, OptionError
from ov_specdec.text.tokenizer import Tokenizer

NO_MERGE = -1
"""The rank of tokens that no merge makes: special and added ones, bytes, characters."""


def first_tokens(tokenizer: Tokenizer, count: int) -> frozenset[int]:
    """The ids of `count` tokens: all that no merge makes, and the first that merges make.

    BPE merges what is most common first, so that no text has to be counted, as in FR-Spec
    (arXiv 2502.14856). Raises `OptionError` for a count that is not among `possible_counts`.
    """
    possible, file = possible_counts(tokenizer), tokenizer.path / "tokenizer.json"
    if count not in possible:
        reason = (
            f" must be from {possible.start}, the special tokens and characters of {file}, to "
            f"{possible.stop - 1}, less than all of its tokens: change it, or leave it out"
            if possible
            else f" needs the merges of a BPE tokenizer, and {file} has none: leave it out"
        )
        raise OptionError(Option("draft_vocabulary", count), reason)
    order = sorted((rank, token) for token, rank in _ranks(tokenizer).items())
    return frozenset(token for _, token in order[:count])


def possible_counts(tokenizer: Tokenizer) -> range:
    """How many tokens can be first: none if the tokenizer has no merges."""
    ranks = _ranks(tokenizer).values()
    return range(sum(rank == NO_MERGE for rank in ranks), len(ranks))


def _ranks(tokenizer: Tokenizer) -> dict[int, int]:
    """The rank of the first merge that makes each token."""
    ranks = dict[str, int]()
    for rank, merge in enumerate(tokenizer.spec["model"].get("merges", ())):  # "a b" or ["a", "b"]
        ranks.setdefault("".join(merge.split(" ", 1) if isinstance(merge, str) else merge), rank)
    return {token: ranks.get(name, NO_MERGE) for name, token in tokenizer.vocab.items()}
