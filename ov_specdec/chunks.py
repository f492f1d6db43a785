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
    "max_new_tokens": "max_new_tokens is reached",
    "max_model_len": "cut short: prompt and output fill the context, max_model_len",
    "kv_cache_size": "cut short: prompt and output fill the KV caches, kv_cache_size",
}


@dataclass(frozen=True)
class Chunk:
    """A piece of output: tokens of one round that have one origin.

    text: what may be shown now; a piece of text may come later than its tokens. rejected_ids: the
    draft tokens that were rejected, on the correction that took the place of the first of them.
    logprobs: of each token, where an option asks for them. prompt_logprobs: of each token of the
    prompt, on the first chunk. num_prompt_tokens: of the whole prompt, on every chunk.
    finish_reason and stats: set on the last chunk only; "stop" is an end-of-sequence token or a
    stop string, which `stats.stop_string` then is, "cancelled" a stream that was cancelled,
    "length" the budget, or the end of the model's context or of the KV cache:
    `stats.length_limit` says which.
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
        """Whether the tokens are accepted draft tokens, or else the main model's own."""
        return self.origin == "draft"


@name_missing(OF_RESULTS)
@dataclass(frozen=True, repr=False)
class GenerationResult:
    """A finished generation. `text` and `token_ids` hold the output without the prompt.

    logprobs, prompt_logprobs: of each token of output and prompt, where options ask for them.
    chunks: the output by where its tokens come from; a notebook shows it so.
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
        """What ended the output, in words."""
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
        """As IPython shows it: the text, marked by where its tokens come from."""
        pieces = [(chunk.origin, chunk.text) for chunk in self.chunks]
        figures = escape(f"{self.stats!r}; {self.finish_message}")
        return (
            f'<pre style="white-space: pre-wrap">{as_html(pieces)}</pre>'
            f"<small>{figures}<br>{legend(origin for origin, _ in pieces)}</small>"
        )


class Output:
    """The text of one generation, as its rounds come, up to the first stop string.

    text: what has been shown of it. num_prompt_tokens:
    what was asked, which an encoder-decoder model's sequence does not hold.
    """

    def __init__(self, text: IncrementalDetokenizer, num_prompt_tokens: int) -> None:
        self.stats = GenerationStats(num_prompt_tokens)
        self._text = text

    def add(self, sequence: EngineSequence, round_: Round) -> list[Chunk]:
        """A round's tokens as chunks; a stop string ends the sequence.

        The last chunk has the finish reason where the text has ended.
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
        """Some of a round's tokens, up to a stop string."""
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
        """The last chunk of a generation that was cancelled."""
        text = self._text.finish()
        return Chunk(text, [], "plain", finish_reason="cancelled", stats=self.stats)


def _own_origin(round_: Round) -> Origin:
    """That of the main model's own token."""
    if not round_.draft_tokens:
        return "plain"
    return "bonus" if round_.num_from_draft == len(round_.draft_tokens) else "correction"


@dataclass
class Given:
    """The output that was handed over."""

    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)

    def add(self, chunk: Chunk) -> None:
        """Take note of one more chunk."""
        self.texts.append(chunk.text)
        self.token_ids += chunk.token_ids


def collect(chunks: Iterable[Chunk]) -> GenerationResult:
    """The result that a stream of chunks, read to its end, amounts to."""
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
