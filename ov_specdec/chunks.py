"""Rounds of tokens as chunks of text: `Chunk`, `Output` and `GenerationResult`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape

from ov_specdec.engine import Round
from ov_specdec.engine import Sequence as EngineSequence
from ov_specdec.errors import OptionError, shorten
from ov_specdec.foreign_options import OF_RESULTS, name_missing
from ov_specdec.logprobs import TokenLogprobs
from ov_specdec.origins import Origin, as_html, legend
from ov_specdec.stats import FinishReason, GenerationStats, LengthLimit
from ov_specdec.text.detokenizer import IncrementalDetokenizer

LENGTH_MESSAGES: Mapping[LengthLimit, str] = {
    "max_new_tokens": "the output has max_new_tokens",
    "max_model_len": "cut short: prompt and output fill the context, max_model_len",
    "kv_cache_size": "cut short: prompt and output fill the KV caches, kv_cache_size",
}


@dataclass(frozen=True)
class Chunk:
    """A piece of output: tokens of one round that have one origin.

    text: text to show now; it may come later than its tokens. rejected_ids: rejected draft tokens,
    on the correction that replaces the first of them. logprobs: of each token, if requested.
    prompt_logprobs: of each token of the prompt, on the first chunk. num_prompt_tokens: of the
    whole prompt, on every chunk. finish_reason and stats: on the last chunk only; "stop" after an
    end-of-sequence token or the stop string in `stats.stop_string`, "cancelled" after a
    cancellation, "length" at the limit named by `stats.length_limit`.
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

    @property
    def from_draft(self) -> bool:
        """Whether the tokens are accepted draft tokens; otherwise they are the main model's own."""
        return self.origin == "draft"


@name_missing(OF_RESULTS)
@dataclass(frozen=True, repr=False)
class GenerationResult:
    """A finished generation. `text` and `token_ids` hold the output without the prompt.

    logprobs, prompt_logprobs: of each token of output and prompt, if requested. chunks: the output
    by origin of its tokens, as notebooks show it.
    """

    text: str
    token_ids: list[int]
    finish_reason: FinishReason
    stats: GenerationStats
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)
    chunks: Sequence[Chunk] = ()

    @property
    def finish_message(self) -> str:
        """Why the output ended, in words."""
        if self.finish_reason == "length":
            return LENGTH_MESSAGES[self.stats.length_limit]
        if self.finish_reason == "cancelled":
            return "cancelled"
        stop = self.stats.stop_string
        return "end of text" if stop is None else f"stop string {shorten(stop)}"

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
            f"<small>{figures}<br>{legend(origin for origin, _ in pieces)}</small>"
        )


class Output:
    """Turns the rounds of one generation into chunks, up to the first stop string.

    text: the detokenizer. num_prompt_tokens: of the prompt, which is not part of the sequence of an
    encoder-decoder model.
    """

    def __init__(self, text: IncrementalDetokenizer, num_prompt_tokens: int) -> None:
        self.stats = GenerationStats(num_prompt_tokens)
        self._text = text

    def add(self, sequence: EngineSequence, round_: Round) -> list[Chunk]:
        """The chunks of a round; a stop string ends the sequence.

        The last chunk has the finish reason if the text ends.
        """
        cut, end = round_.num_from_draft, len(round_.tokens)
        chunks = [self._chunk(round_, slice(0, cut), "draft", [])] if cut else []
        if cut < end and not self._text.stopped:
            rejected = round_.draft_tokens[cut:]
            chunks.append(self._chunk(round_, slice(cut, end), _own_origin(round_), rejected))
        if self._text.stopped:
            sequence.finish_reason, self.stats.stop_string = "stop", self._text.stop_string
        stats, num_generated = round_.stats, sum(len(chunk.token_ids) for chunk in chunks)
        if num_generated < stats.num_generated:
            stats = replace(stats, num_generated=num_generated)
        self.stats.rounds.append(stats)
        if sequence.finish_reason is not None:
            chunks[-1] = replace(
                chunks[-1],
                text=chunks[-1].text + self._text.finish(),
                finish_reason=sequence.finish_reason,
                stats=self.stats,
            )
        return chunks

    def _chunk(self, round_: Round, part: slice, origin: Origin, rejected: list[int]) -> Chunk:
        """A chunk of some of a round's tokens, up to a stop string."""
        tokens = round_.tokens[part]
        num_kept = self._text.push(tokens)
        return Chunk(
            self._text.take(),
            tokens[:num_kept],
            origin,
            rejected,
            logprobs=round_.logprobs[part][:num_kept],
            prompt_logprobs=round_.prompt_logprobs,
            num_prompt_tokens=self.stats.prompt_tokens,
        )

    def cancelled(self) -> Chunk:
        """The last chunk of a cancelled generation."""
        text = self._text.finish()
        return Chunk(text, [], "plain", finish_reason="cancelled", stats=self.stats)


def _own_origin(round_: Round) -> Origin:
    """The origin of the main model's own token."""
    if not round_.draft_tokens:
        return "plain"
    return "bonus" if round_.num_from_draft == len(round_.draft_tokens) else "correction"


@dataclass
class Given:
    """The output that the reader got."""

    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)

    def add(self, chunk: Chunk) -> None:
        """Add a chunk."""
        self.texts.append(chunk.text)
        self.token_ids += chunk.token_ids


def collect(chunks: Iterable[Chunk]) -> GenerationResult:
    """Join all chunks of a stream to a result."""
    texts, token_ids = [], []
    logprobs: list[TokenLogprobs] = []
    prompt_logprobs: list[TokenLogprobs] = []
    seen = []
    for chunk in chunks:
        seen.append(chunk)
        texts.append(chunk.text)
        token_ids += chunk.token_ids
        logprobs += chunk.logprobs
        prompt_logprobs += chunk.prompt_logprobs
        if chunk.finish_reason is not None and chunk.stats is not None:
            return GenerationResult(
                "".join(texts),
                token_ids,
                chunk.finish_reason,
                chunk.stats,
                logprobs,
                prompt_logprobs,
                seen,
            )
    raise OptionError("the stream ended before its last chunk: read it from the beginning")
