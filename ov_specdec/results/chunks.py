"""The text of a generation: `Chunk`, streams of chunks, and `GenerationResult`."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from inspect import GEN_RUNNING, getgeneratorstate
from threading import RLock
from time import monotonic
from typing import Any, Generic, NamedTuple, TypeVar

from typing_extensions import Self

from ov_specdec.errors import OptionError, shorten
from ov_specdec.results.origins import Origin, as_html, legend_of
from ov_specdec.results.parts import Part, Text, ToolCall, calls_of, joined, reasoning_of
from ov_specdec.results.stats import FinishReason, GenerationStats, LengthLimit
from ov_specdec.sampling.logits import TokenLogprobs

C = TypeVar("C")
Parse = Callable[[str], Any]


class Ending(NamedTuple):
    """Why an output ended. message: in a sentence. label: in a few words.

    remedy, remedy_in_chat: for an output that was cut short, what to do on the command line.
    """

    message: str
    label: str
    remedy: str = ""
    remedy_in_chat: str = ""


ENDINGS: Mapping[FinishReason | LengthLimit, Ending] = {
    "stop": Ending("end of text", "finished: end of text"),
    "tool_calls": Ending("calls of tools", "finished: calls of tools"),
    "cancelled": Ending("cancelled", "stopped"),
    "max_new_tokens": Ending("the output has max_new_tokens", "finished: token limit"),
    "max_model_len": Ending(
        "cut short: prompt and output fill the context, max_model_len",
        "cut by context",
        "the model's context is full: give a shorter prompt",
        "the model's context is full: /undo or /clear makes room",
    ),
    "kv_cache_size": Ending(
        "cut short: prompt and output fill the KV caches, kv_cache_size",
        "cut by memory",
        "the KV cache is full: raise --kv-cache-size",
        "the KV cache is full: /undo, /clear or a larger --kv-cache-size makes room",
    ),
}
"""By finish reason, or by the limit for "length"."""


@dataclass(frozen=True)
class Chunk:
    """A piece of output: tokens of one round that have one origin.

    text: text to show now; it may come later than its tokens. rejected_ids: rejected draft tokens,
    on the correction that replaces the first of them. logprobs: of each token, if requested.
    prompt_logprobs: of each token of the prompt, on the first chunk. num_prompt_tokens: of the
    whole prompt, on every chunk. finish_reason and stats: on the last chunk only; "stop" after an
    end-of-sequence token or the stop string in `stats.stop_string`, "tool_calls" after such a token
    behind whole calls, "cancelled" after a cancellation, "length" at the limit named by
    `stats.length_limit`. parse: on the last chunk, turns the text into its value, if its grammar
    accepts it. parts: `Reasoning`, `Text`, `CallBegin`, `Arguments` and `CallEnd` of an answer in a
    chat template that marks them, in order; text is then that of `Text`.
    """

    text: str
    token_ids: list[int]
    origin: Origin
    rejected_ids: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stats: GenerationStats | None = None
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)
    num_prompt_tokens: int = 0
    parse: Parse | None = None
    parts: tuple[Part, ...] = ()

    @property
    def from_draft(self) -> bool:
        """Whether the tokens are accepted draft tokens; otherwise they are the main model's own."""
        return self.origin == "draft"

    @property
    def joined_parts(self) -> list[Part]:
        """The parts, neighbours of one kind as one; the text of an answer that is not parsed."""
        return [*joined(self.parts)] or [Text(self.text)] * bool(self.text)


class ChunkStream(Generic[C]):
    """The chunks of one output.

    chunks: a generator of them. cancel: has it end within one pass. Thread-safe.
    """

    def __init__(self, chunks: Generator[C, None, None], cancel: Callable[[], None]) -> None:
        self._chunks = chunks
        self._cancel = cancel
        self._advancing = RLock()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> C:
        with self._advancing:
            return next(self._chunks)

    def cancel(self) -> None:
        """End it within one pass; its last chunk has finish_reason "cancelled".

        Returns at once. May be called from any thread, and during the prefill.
        """
        self._cancel()

    def close(self) -> None:
        """End it without a last chunk, and free its memory.

        Waits for a pass that is running in another thread. Within one of its own logits
        processors, it acts like `cancel`.
        """
        self.cancel()
        with self._advancing:
            if getgeneratorstate(self._chunks) != GEN_RUNNING:
                self._chunks.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@dataclass(frozen=True, repr=False)
class GenerationResult:
    """A finished generation. `text` and `token_ids` hold the output without the prompt.

    text: without reasoning and calls of tools. logprobs, prompt_logprobs: of each token of output
    and prompt, if requested. chunks: the output by origin of its tokens, as notebooks show it.
    """

    text: str
    token_ids: list[int]
    finish_reason: FinishReason
    stats: GenerationStats
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)
    chunks: Sequence[Chunk] = ()

    @property
    def parsed(self) -> Any:
        """The value of structured output: of JSON, an instance of a pydantic model, or the text.

        None unless the grammar accepts the whole text. Raises what the pydantic model raises for
        what its schema does not say.
        """
        parse = self.chunks[-1].parse if self.chunks else None
        return None if parse is None else parse(self.text)

    @property
    def parts(self) -> list[Part]:
        """The parts of an answer with reasoning or calls."""
        return [part for chunk in self.chunks for part in chunk.parts]

    @property
    def reasoning(self) -> str:
        """The reasoning, if the model's chat template marks it."""
        return reasoning_of(self.parts)

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The calls of tools; the last may be cut short, see `ToolCall`."""
        return calls_of(self.parts)

    @property
    def message(self) -> dict[str, Any]:
        """The answer as a message of the next prompt; whole calls have an `id` for their result."""
        whole = (call for call in self.tool_calls if call.is_whole)
        calls = [call.as_message(f"call{n:05}") for n, call in enumerate(whole)]
        parts = {"reasoning_content": self.reasoning, "tool_calls": calls}
        return {"role": "assistant", "content": self.text, **{k: v for k, v in parts.items() if v}}

    @property
    def ending(self) -> Ending:
        """Why the output ended."""
        is_cut = self.finish_reason == "length"
        return ENDINGS[self.stats.length_limit if is_cut else self.finish_reason]

    @property
    def finish_message(self) -> str:
        """Why the output ended, in words."""
        stop = self.stats.stop_string
        return self.ending.message if stop is None else f"stop string {shorten(stop)}"

    def __repr__(self) -> str:
        return (
            f"GenerationResult(text={shorten(self.text)},\n"
            f"    {len(self.token_ids)} token_ids, finish_reason={self.finish_reason!r} "
            f"({self.finish_message}),\n"
            f"    stats={self.stats!r})"
        )

    def _repr_html_(self) -> str:
        """The text for IPython, marked by the origin of its tokens."""
        pieces = [(chunk.origin, chunk.text) for chunk in self.chunks]
        figures = escape(f"{self.stats!r}; {self.finish_message}")
        return (
            f'<pre style="white-space: pre-wrap">{as_html(pieces)}</pre>'
            f"<small>{figures}<br>{legend_of(origin for origin, _ in pieces)}</small>"
        )


@dataclass
class ResultBuilder:
    """Joins the chunks of one output as they come.

    first_token, ended: when the first token and the last chunk came, by `time.monotonic`.
    """

    chunks: list[Chunk] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    first_token: float | None = None
    ended: float | None = None

    def add(self, chunk: Chunk, now: float | None = None) -> None:
        """Add the next chunk. now: when it came; None: now."""
        now = monotonic() if now is None else now
        if self.first_token is None and chunk.token_ids:
            self.first_token = now
        if chunk.finish_reason is not None:
            self.ended = now
        self.chunks.append(chunk)
        self.token_ids += chunk.token_ids

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(chunk.text for chunk in self.chunks)

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why it ended; None until then."""
        return self.chunks[-1].finish_reason if self.chunks else None

    @property
    def stats(self) -> GenerationStats | None:
        """The statistics, on the last chunk; None until then."""
        return self.chunks[-1].stats if self.chunks else None

    @property
    def result(self) -> GenerationResult:
        """The whole; `OptionError` if the last chunk is missing."""
        if self.finish_reason is None or self.stats is None:
            raise OptionError("the stream ended before its last chunk: read it from the beginning")
        return GenerationResult(
            self.text,
            self.token_ids,
            self.finish_reason,
            self.stats,
            [token for chunk in self.chunks for token in chunk.logprobs],
            [token for chunk in self.chunks for token in chunk.prompt_logprobs],
            self.chunks,
        )


def collect(chunks: Iterable[Chunk]) -> GenerationResult:
    """Join all chunks of a stream to a result."""
    builder = ResultBuilder()
    for chunk in chunks:
        builder.add(chunk)
        if chunk.finish_reason is not None:
            break
    return builder.result
