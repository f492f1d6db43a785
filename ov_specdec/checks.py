"""Checks of option values, with messages that name the option, the value and what is allowed."""

from collections.abc import Sequence

from ov_specdec.errors import OptionError


def require_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Refuse a value that is not one of `choices`."""
    if value not in choices:
        raise OptionError(f"{name}={value!r} is not one of {', '.join(choices)}")


def require_int(name: str, value: object, *, low: int, high: int | None = None) -> None:
    """Refuse a value that is not a whole number from `low` to `high`."""
    if isinstance(value, int) and not isinstance(value, bool):
        if value >= low and (high is None or value <= high):
            return
    allowed = f"at least {low}" if high is None else f"from {low} to {high}"
    raise OptionError(f"{name}={value!r} must be a whole number, {allowed}")
