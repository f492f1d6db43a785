"""The errors that a user can meet. Each message names the offending value and the remedy."""


class SpecdecError(Exception):
    """Base of everything that ov_specdec raises on purpose."""


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
        remedy = f"transformers='{wanted}' makes an environment for it"
        super().__init__(f"{self.finding}: {remedy}")


CLOSED = "this pipeline is closed: make a new one"
"""What a `SessionError` says of a pipeline that was closed."""


def openvino_message(error: RuntimeError) -> str:
    """The line of an OpenVINO exception that says what is wrong; the rest is source locations."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
