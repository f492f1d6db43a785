"""Checks of option values; their messages name the option, the value and allowed values."""

import difflib
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from numbers import Real
from typing import Any

from ov_specdec.errors import Option, OptionError


def make_plain(options: Any) -> None:
    """Convert the fields of a dataclass, frozen or not, to Python's own numbers and lists."""
    for field in fields(options):
        object.__setattr__(options, field.name, _as_plain(getattr(options, field.name)))


def _as_plain(value: Any) -> Any:
    """A value with numpy's numbers and arrays replaced by Python's, at any depth."""
    if hasattr(value, "tolist"):  # of arrays and scalars; numpy itself takes long to import
        return value.tolist()
    if isinstance(value, dict):
        return {_as_plain(key): _as_plain(each) for key, each in value.items()}
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(_as_plain(each) for each in value)
    if isinstance(value, Iterator):  # readable only once
        return tuple(map(_as_plain, value))
    return value


def require_utf8(what: str | Option, text: str) -> None:
    """Refuse a text with lone surrogates, which no tokenizer takes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise OptionError(
            what,
            f" is not valid text at character {error.start} ({error.reason}): give it as UTF-8",
        ) from error


def suggest(
    name: str, known: Iterable[str], otherwise: str, *, most: int = 3, cutoff: float = 0.6
) -> str:
    """A hint for an unknown name: the most similar names, or else `otherwise`.

    cutoff: 0 to 1, the required similarity.
    """
    close = difflib.get_close_matches(name, list(known), n=most, cutoff=cutoff)
    return f"did you mean {' or '.join(close)}?" if close else otherwise


def require_known(
    names: Iterable[str],
    known: Collection[str],
    kind: str,
    elsewhere: Mapping[str, str] | None = None,
) -> None:
    """Refuse an unknown name.

    kind: of the name, for the message. elsewhere: known names by their names in other libraries.
    """
    for name in names:
        if name not in known:
            meant = (elsewhere or {}).get(name, name)
            hint = suggest(meant, known, f"there are: {', '.join(known)}", most=1)
            raise OptionError(f"unknown {kind} '{name}': {hint}")


def require_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Refuse a value that is not one of `choices`."""
    if value not in choices:
        raise OptionError(Option(name, value), f" is not one of {', '.join(choices)}")


def require_bool(name: str, value: object) -> None:
    """Refuse a value that is not True or False."""
    if not isinstance(value, bool):
        raise OptionError(Option(name, value), " must be True or False")


def require_text(name: str, value: object) -> None:
    """Refuse a value that is not a text."""
    if not isinstance(value, str):
        raise OptionError(Option(name, value), " must be a text")


def require_texts(name: str, value: object) -> None:
    """Refuse a value that does not map texts to texts."""
    if not isinstance(value, Mapping) or not all(
        isinstance(text, str) for pair in value.items() for text in pair
    ):
        raise OptionError(Option(name, value), " must map names to values, all of them texts")


def require_int(
    name: str, value: object, *, low: int | None = None, high: int | None = None
) -> None:
    """Refuse a value that is not a whole number from `low` to `high`."""
    if isinstance(value, int) and not isinstance(value, bool):
        if (low is None or value >= low) and (high is None or value <= high):
            return
    allowed = f", at least {low}" if high is None else f", from {low} to {high}"
    raise OptionError(
        Option(name, value), f" must be a whole number{allowed if low is not None else ''}"
    )


def require_ids(where: str | Option, ids: Iterable[int], vocab_size: int) -> None:
    """Refuse token ids that a model does not have."""
    for token in ids:
        if not 0 <= token < vocab_size:
            raise OptionError(
                where, f" holds token id {token}: the model has 0 to {vocab_size - 1}"
            )


def _is_finite(value: Real) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond the range of floats
        return False


def require_number(
    name: str,
    value: object,
    *,
    low: float | None = None,
    above: float | None = None,
    high: float | None = None,
) -> None:
    """Refuse a value that is not a finite number from `low`, or above `above`, to `high`."""
    if isinstance(value, Real) and not isinstance(value, bool) and _is_finite(value):
        number = float(value)
        if (low is None or number >= low) and (above is None or number > above):
            if high is None or number <= high:
                return
    from_ = "of at least {}" if high is None else "from {}"
    bounds = ((low, from_), (above, "above {}"), (high, "to {}"))
    allowed = " ".join(text.format(bound) for bound, text in bounds if bound is not None)
    raise OptionError(Option(name, value), f" must be a number {allowed}".rstrip())
