"""Errors for users. Each message names the offending value and the remedy."""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple


def shorten(value: object) -> str:
    """A value for a message, in at most 80 characters."""
    return cut(repr(value))


def cut(shown: str) -> str:
    """A text for a message, cut to 80 characters."""
    return shown if len(shown) <= 80 else f"{shown[:77]}..."


def suggest(
    name: str, known: Iterable[str], otherwise: str, *, most: int = 3, cutoff: float = 0.6
) -> str:
    """A hint for an unknown name: the most similar names, or else `otherwise`."""
    close = difflib.get_close_matches(name, list(known), n=most, cutoff=cutoff)
    return f"did you mean {' or '.join(close)}?" if close else otherwise


class Option(NamedTuple):
    """An option in a message. Each interface writes it in its own way.

    value: its given value, or one to give instead; `...` for the name alone.
    """

    name: str
    value: object = ...

    def __str__(self) -> str:
        """As a Python keyword argument."""
        return self.name if self.value is ... else f"{self.name}={shorten(self.value)}"


class SpecdecError(Exception):
    """Base of all errors of ov_specdec.

    options: those that the message names in braces, with their values, or values to give instead;
    `...` for a name alone, an `Option` where only the running program knows which:
    `OptionError("{draft} needs {main}", draft="x", main=...)` is "draft='x' needs main" in Python.
    If an option comes first, it is at fault.
    """

    def __init__(self, message: str = "", /, **options: object) -> None:
        super().__init__(message)
        named = {k: v if isinstance(v, Option) else Option(k, v) for k, v in options.items()}
        pieces = re.split(rf"{{({'|'.join(named)})}}", message) if named else [message]
        self._parts = [named[p] if i % 2 else p for i, p in enumerate(pieces) if p]
        first = self._parts[0] if self._parts else ""
        at_fault = first if isinstance(first, Option) else Option("")
        self.option: str | None = at_fault.name or None
        """The Python name of the option at fault; None if there is none."""
        self.value: object = None if at_fault.value is ... else at_fault.value
        """The given value of that option; None if the message does not show it."""

    @property
    def reason(self) -> str:
        """Problem and remedy: the message without the option at fault."""
        rest = self._parts if self.option is None else self._parts[1:]
        return "".join(map(str, rest)).lstrip(": ")

    def render(self, write: Callable[[Option], str]) -> str:
        """The message, with each option written by `write`."""
        return "".join(write(p) if isinstance(p, Option) else p for p in self._parts)

    def __str__(self) -> str:
        return self.render(str)


class OptionError(SpecdecError, ValueError):
    """A prompt or option is invalid: unknown, out of range, or contradictory."""


class ContextLengthError(OptionError):
    """A prompt leaves no room for an output in the model's context."""


class AudioError(OptionError):
    """A recording is invalid: not an audio file, empty, or with values that are not finite."""


class ModelError(SpecdecError):
    """A model folder or IR cannot be used."""


class DeviceError(SpecdecError):
    """OpenVINO does not support a device, precision or property on this machine."""


class TokenizerMismatchError(SpecdecError):
    """Main and draft do not map text to the same token ids."""


class SessionError(SpecdecError):
    """An operation is not possible in the current state, such as on a closed pipeline."""


class BusyError(SessionError):
    """The machine is too busy for this, which is possible later."""


class CacheFullError(SessionError):
    """All blocks of a KV cache are in use."""


class LogitsError(SpecdecError):
    """A row of logits gives no distribution: all are -inf, or one is NaN."""


class DeadEndError(LogitsError):
    """Options and processors forbid all tokens."""


class ExportError(SpecdecError):
    """A checkpoint could not be exported to OpenVINO IR."""


CLOSED = "this pipeline is closed: make a new one"
"""The message of a `SessionError` for a closed pipeline."""


def install(extra: str) -> str:
    """The command that installs an extra of this package, for messages."""
    return f"in a checkout: pip install '.[{extra}]'"


@contextmanager
def requiring(needs: str, extra: str) -> Iterator[None]:
    """Turn an `ImportError` into an `OptionError`: who needs what, and how to install it."""
    try:
        yield
    except ImportError as error:
        raise OptionError(f"{needs} ({error}): {install(extra)}") from error


def openvino_message(error: Exception) -> str:
    """The line with the problem of an OpenVINO exception; the rest is source locations."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
