"""The tokenizer guard: it refuses a pair whose tokenizers map text to different ids.

Speculation exchanges token ids between two models, unless a pairing translates them (`pairing`).
If the same id means different tokens, the output is still exact, but draft tokens are noise. If the
same text maps to different ids, one of the two models gets a prompt that it was never trained on.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Protocol

from ov_specdec.errors import Option, TokenizerMismatchError

MAX_EXAMPLES = 5

PROBES = (
    "The quick brown fox jumps over the lazy dog.",
    "Größe, façade, naïve, Ærøskøbing, İstanbul",
    "Съешь же ещё этих мягких французских булок",
    "敏捷的棕色狐狸跳过了懒狗。速い茶色の狐 빠른 갈색 여우",
    "الثعلب البني السريع השועל החום המהיר तेज़ भूरी लोमड़ी",
    "def f(x: int) -> int:\n\treturn x ** 2  # twice\n\n\n",
    '{"key": [1, 2.5e-3, null], "path": "C:\\\\temp\\\\new"}',
    "0 1 22 333 4444 55555 1,234,567.89 0x1F 1e10",
    " leading, trailing ",
    "a  b   c    d        e\t\tf\n \n  \n\r\nend",
    "😀 👩‍👩‍👧‍👦 🏳️‍🌈 é e\u0301 ﬁ ½ \u200b\u00a0\ufeff",
    "don't we'll I'M it''s https://example.com/a?b=c&d=%20",
)


class ComparableTokenizer(Protocol):
    """The part of a tokenizer that the guard uses."""

    @property
    def spec(self) -> dict[str, Any]:
        """The content of its tokenizer.json."""
        ...

    @property
    def full_spec(self) -> dict[str, Any]:
        """`spec` with all defaults, which files of other versions omit; takes long."""
        ...

    @property
    def vocab(self) -> dict[str, int]:
        """Every token's id."""
        ...

    @property
    def vocab_size(self) -> int:
        """One more than the highest id."""
        ...

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        ...


@dataclass(frozen=True)
class Difference:
    """One difference: its name, and the value on each side."""

    what: str
    main: str
    draft: str

    def __str__(self) -> str:
        return f"{self.what}: main {self.main}, draft {self.draft}"


@dataclass(frozen=True)
class Check:
    """One compared property, with all its differences."""

    name: str
    differences: tuple[Difference, ...]


@dataclass(frozen=True)
class GuardReport:
    """All checks of a pair, which is compatible if no check found a difference."""

    checks: tuple[Check, ...]

    @property
    def compatible(self) -> bool:
        """Whether no check found a difference."""
        return not any(check.differences for check in self.checks)

    def lines(self) -> Iterator[str]:
        """The report as text: a line for each check and each example of a difference."""
        for check in self.checks:
            count = len(check.differences)
            yield f"{check.name}: {'same' if not count else f'{count} difference(s)'}"
            yield from (f"  {difference}" for difference in check.differences[:MAX_EXAMPLES])
            if count > MAX_EXAMPLES:
                yield f"  ... and {count - MAX_EXAMPLES} more"

    @property
    def finding(self) -> str:
        """A sentence with the first differences."""
        failed = [check for check in self.checks if check.differences]
        shown = "; ".join(str(check.differences[0]) for check in failed[:3])
        return f"draft and main have different tokenizers ({shown})"

    def require(self, *first: str | Option) -> None:
        """Raise `TokenizerMismatchError` with the first differences, unless compatible.

        first: what to do before the usual remedies.
        """
        if not self.compatible:
            raise TokenizerMismatchError(
                f"{self.finding}: ",
                *first,
                "use a draft of the same family, ",
                Option("pairing", "auto"),
                ", or leave out the draft model: suffix matches then draft",
                "; ov-specdec check lists all differences and the pairings that are possible",
            )


def compare_tokenizers(
    main: ComparableTokenizer, draft: ComparableTokenizer, *, main_width: int, draft_width: int
) -> GuardReport:
    """Compare all settings that decide the ids of a text, and the widths of the logits.

    main_width, draft_width: columns of the models' logits. They may be padded beyond the
    tokenizer, and to different widths: columns without a token are never chosen.
    """
    a, b = main.spec, draft.spec
    if a != b:
        a, b = main.full_spec, draft.full_spec
    probes = (*PROBES, *_special_probes(main), *_special_probes(draft))
    return GuardReport(
        (
            Check("vocabulary", tuple(_vocabulary(main, draft))),
            Check("merges", tuple(_merges(a, b))),
            Check("tokenizer model", tuple(_model_settings(a["model"], b["model"]))),
            Check("added and special tokens", tuple(_added_tokens(a, b))),
            *(
                Check(part.replace("_", "-"), tuple(_values(part, a.get(part), b.get(part))))
                for part in ("normalizer", "pre_tokenizer", "post_processor")
            ),
            Check("encoding of probe texts", tuple(_encodings(main, draft, probes))),
            Check("width of the logits", tuple(_widths(main, main_width, draft_width))),
        )
    )


def _values(what: str, main: object, draft: object) -> Iterator[Difference]:
    if main != draft:
        yield Difference(what, _shorten(main), _shorten(draft))


def _vocabulary(main: ComparableTokenizer, draft: ComparableTokenizer) -> Iterator[Difference]:
    a = {token_id: token for token, token_id in main.vocab.items()}
    b = {token_id: token for token, token_id in draft.vocab.items()}
    for token_id in sorted(a.keys() | b.keys()):
        yield from _values(f"id {token_id}", a.get(token_id), b.get(token_id))


def _merges(main: dict[str, Any], draft: dict[str, Any]) -> Iterator[Difference]:
    """Differences between BPE merges, in order of rank; for Unigram, between its scores."""
    key = "vocab" if isinstance(main["model"].get("vocab"), list) else "merges"
    a, b = main["model"].get(key) or [], draft["model"].get(key) or []
    for rank, (left, right) in enumerate(zip_longest(_as_pairs(a), _as_pairs(b))):
        yield from _values(f"rank {rank}", left, right)


def _as_pairs(entries: Any) -> Iterator[tuple[Any, ...]]:
    """Merges as pairs: files write them as "a b" or as ["a", "b"]."""
    for entry in entries:
        yield tuple(entry.split(" ", 1)) if isinstance(entry, str) else tuple(entry)


def _model_settings(main: dict[str, Any], draft: dict[str, Any]) -> Iterator[Difference]:
    for key in sorted((main.keys() | draft.keys()) - {"vocab", "merges"}):
        yield from _values(key, main.get(key), draft.get(key))


def _added_tokens(main: dict[str, Any], draft: dict[str, Any]) -> Iterator[Difference]:
    """Differences in content, special flag or stripping of added tokens.

    The names eos and pad are not compared: they change no encoding, and the base and chat models of
    one family differ in them.
    """
    a = {token["id"]: token for token in main.get("added_tokens", [])}
    b = {token["id"]: token for token in draft.get("added_tokens", [])}
    for token_id in sorted(a.keys() | b.keys()):
        yield from _values(f"added token {token_id}", a.get(token_id), b.get(token_id))


def _special_probes(tokenizer: ComparableTokenizer) -> Iterator[str]:
    for token in tokenizer.spec.get("added_tokens", []):
        yield f"before {token['content']}after {token['content']} "


def _encodings(
    main: ComparableTokenizer, draft: ComparableTokenizer, probes: tuple[str, ...]
) -> Iterator[Difference]:
    for text in probes:
        yield from _values(f"encoding of {text!r}", main.encode(text), draft.encode(text))


def _widths(main: ComparableTokenizer, main_width: int, draft_width: int) -> Iterator[Difference]:
    needed = main.vocab_size
    if min(main_width, draft_width) < needed and main_width != draft_width:
        yield Difference(f"logits for {needed} tokens", str(main_width), str(draft_width))


def _shorten(value: object) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
