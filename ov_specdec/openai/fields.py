"""Reads the fields of a request body: each is used, or has a value that changes nothing."""

from collections.abc import Callable, Mapping
from typing import Any

from ov_specdec.checks import (
    require_bool,
    require_int,
    require_number,
    require_text,
    require_utf8,
    suggest,
)
from ov_specdec.errors import OptionError, shorten
from ov_specdec.openai.errors import invalid


class Fields:
    """The fields of a JSON object that are not null.

    Raises `ApiError`, which names the field, for values that cannot be used. Those that were not
    read when `finish` is called are refused.
    """

    def __init__(self, body: object) -> None:
        if not isinstance(body, Mapping):
            raise invalid(None, f"the body is {shorten(body)}: it must be a JSON object")
        self._given = {str(name): value for name, value in body.items() if value is not None}
        self._known: set[str] = set()

    def get(self, name: str) -> Any:
        """A value as it is; None where it is not given."""
        self._known.add(name)
        return self._given.get(name)

    def integer(self, name: str, *, low: int, high: int | None = None) -> int | None:
        """A whole number."""
        value: int | None = self._checked(name, lambda v: require_int(name, v, low=low, high=high))
        return value

    def number(self, name: str, **bounds: float) -> float | None:
        """A number. bounds: low, above, high."""
        value: float | None = self._checked(name, lambda v: require_number(name, v, **bounds))
        return value

    def flag(self, name: str) -> bool:
        """True or false; false where it is not given."""
        return self._checked(name, lambda v: require_bool(name, v)) or False

    def text(self, name: str) -> str | None:
        """A text."""

        def check(value: Any) -> None:
            require_text(name, value)
            require_utf8(name, value)

        value: str | None = self._checked(name, check)
        return value

    def mapping(self, name: str) -> dict[str, Any] | None:
        """A JSON object."""
        value = self.get(name)
        if value is None or isinstance(value, dict):
            return value
        raise invalid(name, f"{name}={shorten(value)} must be a JSON object")

    def neutral(self, **values: tuple[Any, ...]) -> None:
        """Refuse fields that have no counterpart here, but for values that change nothing."""
        for name, allowed in values.items():
            value = self.get(name)
            if value is None or any(value == v and type(value) is type(v) for v in allowed):
                continue
            only = f"only {' or '.join(map(repr, allowed))} is taken" if allowed else "leave it out"
            raise invalid(
                name, f"{name}={shorten(value)} is not supported: {only}", "unsupported_value"
            )

    def finish(self) -> None:
        """Refuse what was given and not read."""
        for name, value in self._given.items():
            if name not in self._known:
                hint = suggest(name, self._known, "leave it out", most=1, cutoff=0.8)
                raise invalid(
                    name, f"{name}={shorten(value)} is not supported: {hint}", "unknown_parameter"
                )

    def _checked(self, name: str, check: Callable[[Any], None]) -> Any:
        value = self.get(name)
        if value is None:
            return None
        try:
            check(value)
        except OptionError as error:
            raise invalid(name, str(error)) from error
        return value
