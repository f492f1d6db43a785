"""The tokenizer guard: it refuses a pair whose tokenizers map text to different ids.

Speculation exchanges token ids between two models, unless a pairing translates them (`pairing`).
If the same id means different tokens, the output is still exact, but draft tokens are noise. If the
same text maps to different ids, one of the two models gets a prompt that it was never trained on.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ov_specdec.errors import TokenizerMismatchError, shorten
from ov_specdec.text.tokenizer import Tokenizer, read_merges

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


@dataclass(frozen=True)
class GuardReport:
    """The differences that each check of a pair found, as text; a compatible pair has none."""

    checks: Mapping[str, Sequence[str]]

    @property
    def compatible(self) -> bool:
        """Whether no check found a difference."""
        return not any(self.checks.values())

    def lines(self) -> Iterator[str]:
        """The report as text: a line for each check and each example of a difference."""
        for name, found in self.checks.items():
            yield f"{name}: {f'{len(found)} difference(s)' if found else 'same'}"
            yield from (f"  {difference}" for difference in found[:MAX_EXAMPLES])
            if len(found) > MAX_EXAMPLES:
                yield f"  ... and {len(found) - MAX_EXAMPLES} more"

    @property
    def finding(self) -> str:
        """A sentence with the first differences."""
        first = [found[0] for found in self.checks.values() if found]
        return f"draft and main have different tokenizers ({'; '.join(first[:3])})"

    def require(self) -> None:
        """Raise `TokenizerMismatchError` with the first differences, unless compatible."""
        if not self.compatible:
            raise TokenizerMismatchError(
                f"{self.finding}: use a draft of the same family, {{pairing}}, or leave out the "
                "draft model: suffix matches then draft; ov-specdec check lists all differences "
                "and the pairings that are possible",
                pairing="auto",
            )


def compare_tokenizers(
    main: Tokenizer, draft: Tokenizer, *, main_width: int, draft_width: int
) -> GuardReport:
    """Compare all settings that decide the ids of a text, and the widths of the logits.

    main_width, draft_width: columns of the models' logits. They may be padded beyond the
    tokenizer, and to different widths: columns without a token are never chosen.
    """
    same = main.spec == draft.spec
    added = [token["content"] for t in (main, draft) for token in t.spec.get("added_tokens", [])]
    probes = [*PROBES, *(f"before {name}after {name} " for name in added)]
    a, b = (_properties(t, t.spec if same else t.full_spec, probes) for t in (main, draft))
    checks = {name: list_differences(a[name], b[name]) for name in a}
    widths = [{f"logits for {main.vocab_size} tokens": n} for n in (main_width, draft_width)]
    is_cut = min(main_width, draft_width) < main.vocab_size
    checks["width of the logits"] = list_differences(*widths) if is_cut else []
    return GuardReport(checks)


def list_differences(main: Mapping[str, Any], draft: Mapping[str, Any]) -> list[str]:
    """What two mappings have different values for, with both values."""
    return [
        f"{key}: main {shorten(main.get(key))}, draft {shorten(draft.get(key))}"
        for key in {**main, **draft}
        if main.get(key) != draft.get(key)
    ]


def _properties(
    tokenizer: Tokenizer, spec: Mapping[str, Any], probes: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """All that decides the ids of a text, by check.

    The names eos and pad do not, and differ within families.
    """
    model = dict(spec["model"])
    vocab, merges = model.pop("vocab"), model.pop("merges", None)
    ranked = vocab if isinstance(vocab, list) else merges or []  # the scores of Unigram
    pairs = read_merges(ranked)
    names = sorted((token_id, name) for name, token_id in tokenizer.vocab.items())
    parts = ("normalizer", "pre_tokenizer", "post_processor")
    return {
        "vocabulary": {f"id {i}": name for i, name in names},
        "merges": {f"rank {rank}": pair for rank, pair in enumerate(pairs)},
        "tokenizer model": model,
        "added and special tokens": {
            f"added token {token['id']}": token for token in spec.get("added_tokens", [])
        },
        **{(name := part.replace("_", "-")): {name: spec.get(part)} for part in parts},
        "encoding of probe texts": {f"encoding of {t!r}": tokenizer.encode(t) for t in probes},
    }
