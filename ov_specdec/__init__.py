"""Exact speculative decoding for OpenVINO.

Names are imported when they are first used, so that `ov-specdec --version` loads no OpenVINO.
"""

import sys

# OpenVINO reports its import and conversions to an analytics service, unless this package of its
# is missing. Its own setting, `opt_in_out --opt_out`, belongs to the user, and reports itself.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]

TYPE_CHECKING = False  # type checkers take it for True; `typing` would be one more import

if TYPE_CHECKING:
    from ov_specdec.errors import AudioError as AudioError
    from ov_specdec.errors import ContextLengthError as ContextLengthError
    from ov_specdec.errors import DeviceError as DeviceError
    from ov_specdec.errors import ExportError as ExportError
    from ov_specdec.errors import LogitsError as LogitsError
    from ov_specdec.errors import ModelError as ModelError
    from ov_specdec.errors import OptionError as OptionError
    from ov_specdec.errors import SessionError as SessionError
    from ov_specdec.errors import SpecdecError as SpecdecError
    from ov_specdec.errors import TokenizerMismatchError as TokenizerMismatchError
    from ov_specdec.generation.batch import Batch as Batch
    from ov_specdec.generation.text_generator import GenerationStream as GenerationStream
    from ov_specdec.options.generation import GenerationOptions as GenerationOptions
    from ov_specdec.options.kwargs import GenerationKwargs as GenerationKwargs
    from ov_specdec.options.kwargs import TranscriptionKwargs as TranscriptionKwargs
    from ov_specdec.pipeline import SpeculativePipeline as SpeculativePipeline
    from ov_specdec.results.chunks import Chunk as Chunk
    from ov_specdec.results.chunks import GenerationResult as GenerationResult
    from ov_specdec.results.origins import Origin as Origin
    from ov_specdec.results.parts import ToolCall as ToolCall
    from ov_specdec.results.stats import GenerationStats as GenerationStats
    from ov_specdec.results.stats import RoundStats as RoundStats
    from ov_specdec.speech.options import TranscriptionOptions as TranscriptionOptions
    from ov_specdec.speech.segments import Segment as Segment
    from ov_specdec.speech.segments import SpeechStats as SpeechStats
    from ov_specdec.speech.segments import TranscriptionChunk as TranscriptionChunk
    from ov_specdec.speech.segments import TranscriptionResult as TranscriptionResult
    from ov_specdec.speech.transcriber import TranscriptionStream as TranscriptionStream
    from ov_specdec.speech_pipeline import SpeechPipeline as SpeechPipeline
    from ov_specdec.text.chat_template import Message as Message

    __version__: str
else:
    # Type checkers shall see the imports above, not a function that answers to any name.

    _MODULES = {
        "errors": (
            *("AudioError", "ContextLengthError", "DeviceError", "ExportError", "LogitsError"),
            *("ModelError", "OptionError", "SessionError", "SpecdecError"),
            "TokenizerMismatchError",
        ),
        "generation.batch": ("Batch",),
        "results.chunks": ("Chunk", "GenerationResult"),
        "results.origins": ("Origin",),
        "results.parts": ("ToolCall",),
        "generation.text_generator": ("GenerationStream",),
        "options.kwargs": ("GenerationKwargs", "TranscriptionKwargs"),
        "options.generation": ("GenerationOptions",),
        "pipeline": ("SpeculativePipeline",),
        "speech.options": ("TranscriptionOptions",),
        "speech.segments": ("Segment", "SpeechStats", "TranscriptionChunk", "TranscriptionResult"),
        "speech.transcriber": ("TranscriptionStream",),
        "speech_pipeline": ("SpeechPipeline",),
        "results.stats": ("GenerationStats", "RoundStats"),
        "text.chat_template": ("Message",),
    }
    _MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}
    __all__ = sorted([*_MODULE_OF, "__version__"])

    def __getattr__(name: str) -> object:
        if name == "__version__":
            from importlib.metadata import version

            value = version("ov-specdec")
        elif name in _MODULE_OF:
            from importlib import import_module

            value = getattr(import_module(f"ov_specdec.{_MODULE_OF[name]}"), name)
        else:
            raise AttributeError(f"module 'ov_specdec' has no attribute '{name}'")
        globals()[name] = value  # the next time it is found without this function
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
