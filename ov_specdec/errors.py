"""The errors that a user can meet. Each message names the offending value and the remedy."""

from collections.abc import Callable
from typing import NamedTuple


def shorten(value: object) -> str:
    """A value as a message shows it, in at most 80 characters."""
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."


class Option(NamedTuple):
    """An option that a message names. Each interface writes it in its own way.

    value: what it was given, or may be given instead; `...` for the name alone.
    """

    name: str
    value: object = ...

    def __str__(self) -> str:
        """As Python has it."""
        return self.name if self.value is ... else f"{self.name}={shorten(self.value)}"


class SpecdecError(Exception):
    """Base of everything that ov_specdec raises on purpose.

    parts: those of the message, in which options are not text but `Option`s. An option that it
    begins with is at fault.
    """

    def __init__(self, *parts: str | Option) -> None:
        super().__init__(*parts)
        self._parts = parts

    @property
    def option(self) -> str | None:
        """The name of the option at fault, as Python has it; None where it is not one option."""
        first = self._parts[0] if self._parts else ""
        return first.name if isinstance(first, Option) else None

    @property
    def value(self) -> object:
        """What that option was given; None where the message does not show it."""
        first = self._parts[0] if self._parts else ""
        return first.value if isinstance(first, Option) and first.value is not ... else None

    @property
    def reason(self) -> str:
        """What is wrong, and the remedy: the message without the option at fault."""
        rest = self._parts if self.option is None else self._parts[1:]
        return "".join(map(str, rest)).lstrip(": ")

    def render(self, write: Callable[[Option], str]) -> str:
        """The message, in which each option is written as `write` has it."""
        return "".join(write(p) if isinstance(p, Option) else p for p in self._parts)

    def __str__(self) -> str:
        return self.render(str)


class OptionError(SpecdecError, ValueError):
    """A prompt or an option that cannot be used: unknown, out of range, or contradictory."""


class ContextLengthError(OptionError):
    """A prompt that leaves no room for an output in the model's context."""


class AudioError(OptionError):
    """A recording that cannot be used: no audio file, empty, or with values that are no numbers."""


class ModelError(SpecdecError):
    """A model folder or an IR that cannot be used."""


class DeviceError(SpecdecError):
    """A device, precision or property that OpenVINO does not offer on this machine."""


class TokenizerMismatchError(SpecdecError):
    """Main and draft do not map text to the same token ids."""


class SessionError(SpecdecError):
    """A sequence was asked for something its KV cache cannot do."""


class CacheFullError(SessionError):
    """All blocks of a KV cache are in use."""


class LogitsError(SpecdecError):
    """A row of logits that gives no distribution: all forbidden, or not a number."""


class DeadEndError(LogitsError):
    """The options and processors leave no token that may follow."""


class ExportError(SpecdecError):
    """A checkpoint could not be exported to OpenVINO IR."""


class TransformersVersionError(ExportError):
    """Optimum exports a model with another version of transformers than the one it found."""

    def __init__(self, name: str, bound: str, wanted: str, found: str) -> None:
        """bound: whether the version that is wanted is the "Maximum" or the "Minimum"."""
        limit = "at most" if bound == "Maximum" else "at least"
        self.wanted = wanted
        self.finding = (
            f"{name}: Optimum exports this family with transformers {wanted} {limit}, and this is "
            f"{found}"
        )
        remedy = " makes an environment for it"
        super().__init__(f"{self.finding}: ", Option("transformers", wanted), remedy)


CLOSED = "this pipeline is closed: make a new one"
"""What a `SessionError` says of a pipeline that was closed."""


def install(extra: str) -> str:
    """How what an extra of this package brings is installed, as every message says it."""
    return f"in a checkout: pip install '.[{extra}]'"


def openvino_message(error: RuntimeError) -> str:
    """The line of an OpenVINO exception that says what is wrong; the rest is source locations."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
