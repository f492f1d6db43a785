"""The most common tokens of a tokenizer, by the order of its merges."""

from ov_specdec.errors import Option, OptionError
from ov_specdec.text.tokenizer import Tokenizer


def first_tokens(tokenizer: Tokenizer, count: int) -> frozenset[int]:
    """The ids of `count` tokens: all that no merge makes, and the first that merges make.

    The former are special and added tokens, bytes and characters. BPE merges what is most common
    first, so that no text has to be counted, as for FR-Spec (arXiv 2502.14856). Raises
    `OptionError` for a tokenizer without merges, and a count that it does not allow.
    """
    ranks, file = dict[str, int](), tokenizer.path / "tokenizer.json"
    for rank, merge in enumerate(tokenizer.spec["model"].get("merges", ())):  # "a b" or ["a", "b"]
        ranks.setdefault("".join(merge.split(" ", 1) if isinstance(merge, str) else merge), rank)
    order = sorted((ranks.get(name, -1), token) for name, token in tokenizer.vocab.items())
    least, most = sum(rank < 0 for rank, _ in order), len(order) - 1
    if not least <= count <= most:
        reason = f" needs the merges of a BPE tokenizer, and {file} has none: leave it out"
        if ranks:
            reason = (
                f" must be from {least}, the special tokens and characters of {file}, to {most}, "
                "less than all of its tokens: change it, or leave it out"
            )
        raise OptionError(Option("draft_vocabulary", count), reason)
    return frozenset(token for _, token in order[:count])
