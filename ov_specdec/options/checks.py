"""Plain values of options, and messages about names: without pydantic, which imports slowly."""

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from ov_specdec.errors import Option, OptionError


def as_plain(value: Any) -> Any:
    """A value with numpy's numbers and arrays replaced by Python's, at any depth."""
    if hasattr(value, "tolist"):  # of arrays and scalars; numpy itself takes long to import
        return value.tolist()
    if isinstance(value, dict):
        return {as_plain(key): as_plain(each) for key, each in value.items()}
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(as_plain(each) for each in value)
    if isinstance(value, Iterator):  # readable only once
        return tuple(map(as_plain, value))
    return value


def as_tuple(value: Any) -> Any:
    """One value or several, as a tuple; None as it is."""
    if value is None:
        return None
    several = hasattr(value, "__iter__") and not isinstance(value, str)
    return tuple(value) if several else (value,)


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
    given: Mapping[str, object],
    known: Collection[str],
    kind: str,
    hints: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Refuse an unknown name.

    kind: of the name, for the message. hints: what to give instead, by unknown names: another name,
    or a sentence.
    """
    for name, value in given.items():
        if name not in known:
            meant = hints.get(name, name)
            meant = hints.get(meant, meant)  # another name may be unknown here too
            otherwise = f"there are: {', '.join(known)}"
            hint = meant if " " in meant else suggest(meant, known, otherwise, most=1)
            # Of other programs, as some of their values are accepted; more names might be secrets.
            shown = Option(name, value) if name in hints else repr(name)
            raise OptionError(f"unknown {kind} {shown}: {hint}")


def require_ids(where: str | Option, ids: Iterable[int], vocab_size: int) -> None:
    """Refuse token ids that a model does not have."""
    for token in ids:
        if not 0 <= token < vocab_size:
            raise OptionError(
                where, f" holds token id {token}: the model has 0 to {vocab_size - 1}"
            )
