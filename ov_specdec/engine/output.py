"""`Output`: rounds of tokens as chunks of text, and how and when these reach their reader."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

from ov_specdec.results.chunks import Chunk, Parse, ResultBuilder
from ov_specdec.results.origins import Origin
from ov_specdec.results.stats import FinishReason, GenerationStats, Round, RoundStats
from ov_specdec.text.detokenizer import IncrementalDetokenizer


@dataclass(frozen=True)
class Reader:
    """Functions that get an output, in the thread that runs steps; none may block.

    on_admit: called once when the sequence first runs. receive: gets the chunks instead of
    `Output.unread`, but no last one of a cancelled generation. on_end: called once at its end, with
    the error if there was one; by the thread that cancels it, if no step is running.
    """

    on_admit: Callable[[], None] | None = None
    receive: Callable[[list[Any]], None] | None = None
    on_end: Callable[[BaseException | None], None] = lambda _: None


class Output:
    """Turns the rounds of one generation into chunks, up to the first stop string.

    text: the detokenizer. stats: those that it fills. kept_tokens: those that the draft model may
    propose; None: all. parser: gives what turns the text into its value, if a grammar accepts the
    whole sequence. reader: None leaves the chunks in `unread`.
    """

    def __init__(
        self,
        text: IncrementalDetokenizer,
        stats: GenerationStats,
        kept_tokens: frozenset[int] | None = None,
        parser: Callable[[], Parse | None] = lambda: None,
        reader: Reader | None = None,
    ) -> None:
        self.stats = stats
        self.given = ResultBuilder()
        """All chunks so far."""
        self.unread = deque[Any]()
        self.begun: float | None = None
        self.first_token: float | None = None
        self.latest: float | None = None
        """When the sequence was admitted, and had its first and latest output, by
        `time.monotonic`."""
        self._text, self._kept_tokens, self._parser = text, kept_tokens, parser
        self._reader = reader or Reader()

    def begin(self) -> None:
        """Tell the reader that the sequence runs, once."""
        if self.begun is None:
            self.begun = monotonic()
            if self._reader.on_admit is not None:
                self._reader.on_admit()

    def publish(self, round_: Round, finish_reason: FinishReason | None) -> FinishReason | None:
        """Pass the chunks of a round on. Returns why the sequence ends with it, if it does.

        finish_reason: that of its tokens; a stop string may end it before.
        """
        (self._reader.receive or self.unread.extend)(self.add(round_, finish_reason))
        self.latest = monotonic()
        self.first_token = self.first_token or self.latest
        return finish_reason if self.stats.stop_string is None else "stop"

    def cancel(self) -> None:
        """Leave the last chunk of a cancelled generation, unless the reader gets chunks."""
        last = self.cancelled()
        if self._reader.receive is None:
            self.unread.append(last)

    def end(self, error: BaseException | None) -> None:
        """Tell the reader that there is no more, and forget it."""
        reader, self._reader = self._reader, Reader()
        reader.on_end(error)

    def add(self, round_: Round, finish_reason: FinishReason | None) -> list[Chunk]:
        """The chunks of a round, up to a stop string.

        finish_reason: of the sequence, if the round ends it. The last chunk has it, or "stop", or
        "tool_calls" for an end after calls.
        """
        cut, end = round_.num_from_draft, len(round_.tokens)
        chunks = [self._chunk(round_, slice(0, cut), "draft", [])] if cut else []
        if not chunks or (cut < end and not self._text.stop_string):  # an empty round has one too
            rejected = round_.draft_tokens[cut:]
            own: Origin = "correction" if rejected else "bonus" if cut else "plain"
            chunks.append(self._chunk(round_, slice(cut, end), own, rejected))
        if self._text.stop_string:
            finish_reason, self.stats.stop_string = "stop", self._text.stop_string
        shown = [token for chunk in chunks for token in chunk.token_ids]
        if (kept := self._kept_tokens) is not None:
            self.stats.outside_draft_vocabulary += sum(token not in kept for token in shown)
        stats, num = round_.stats, len(shown)
        self.stats.rounds.append(_cut(stats, num) if num < stats.num_generated else stats)
        if finish_reason is not None:
            text, parts = self._text.finish(is_cut=finish_reason == "length")
            has_called = self._text.has_called
            if has_called and finish_reason == "stop":  # no text follows calls, so none stops it
                finish_reason = "tool_calls"
            chunks[-1] = replace(
                chunks[-1],
                text=chunks[-1].text + text,
                finish_reason=finish_reason,
                stats=self.stats,
                parse=None if self._text.stop_string or has_called else self._parser(),
                parts=chunks[-1].parts + parts,
            )
        for chunk in chunks:
            self.given.add(chunk)
        return chunks

    def _chunk(self, round_: Round, part: slice, origin: Origin, rejected: list[int]) -> Chunk:
        """A chunk of some of a round's tokens, up to a stop string."""
        tokens = round_.tokens[part]
        offsets = self._text.push(tokens)
        scored = zip(round_.logprobs[part], offsets, strict=False)
        text, parts = self._text.take()
        return Chunk(
            text,
            tokens[: len(offsets)],
            origin,
            rejected,
            logprobs=[replace(token, offset=offset) for token, offset in scored],
            prompt_logprobs=[] if part.start else round_.prompt_logprobs,
            num_prompt_tokens=self.stats.prompt_tokens,
            parts=parts,
        )

    def cancelled(self) -> Chunk:
        """The last chunk of a cancelled generation."""
        text, parts = self._text.finish(is_cut=True)
        last = Chunk(text, [], "plain", finish_reason="cancelled", stats=self.stats, parts=parts)
        self.given.add(last)
        return last


def _cut(stats: RoundStats, num_generated: int) -> RoundStats:
    """Those of a round of which only so many tokens are shown."""
    forced = min(stats.num_forced, num_generated)
    accepted = min(stats.num_accepted, num_generated - forced)
    return replace(stats, num_accepted=accepted, num_generated=num_generated, num_forced=forced)
