"""`Output`: rounds of tokens as chunks of text."""

from collections.abc import Callable
from dataclasses import replace

from ov_specdec.results.chunks import Chunk, Parse, ResultBuilder
from ov_specdec.results.origins import Origin
from ov_specdec.results.stats import FinishReason, GenerationStats, Round
from ov_specdec.text.detokenizer import IncrementalDetokenizer


class Output:
    """Turns the rounds of one generation into chunks, up to the first stop string.

    text: the detokenizer. stats: those that it fills. kept_tokens: those that the draft model may
    propose; None: all. parser: gives what turns the text into its value, if a grammar accepts the
    whole sequence.
    """

    def __init__(
        self,
        text: IncrementalDetokenizer,
        stats: GenerationStats,
        kept_tokens: frozenset[int] | None = None,
        parser: Callable[[], Parse | None] = lambda: None,
    ) -> None:
        self.stats = stats
        self.given = ResultBuilder()
        """All chunks so far."""
        self._text, self._kept_tokens, self._parser = text, kept_tokens, parser

    def add(self, round_: Round, finish_reason: FinishReason | None) -> list[Chunk]:
        """The chunks of a round, up to a stop string.

        finish_reason: of the sequence, if the round ends it. The last chunk has it, or "stop", or
        "tool_calls" for an end after calls.
        """
        cut, end = round_.num_from_draft, len(round_.tokens)
        chunks = [self._chunk(round_, slice(0, cut), "draft", [])] if cut else []
        if not chunks or (cut < end and not self._text.stopped):  # an empty round has one too
            rejected = round_.draft_tokens[cut:]
            own: Origin = "correction" if rejected else "bonus" if cut else "plain"
            chunks.append(self._chunk(round_, slice(cut, end), own, rejected))
        if self._text.stopped:
            finish_reason, self.stats.stop_string = "stop", self._text.stop_string
        if self._kept_tokens is not None:
            self.stats.outside_draft_vocabulary += sum(
                token not in self._kept_tokens for chunk in chunks for token in chunk.token_ids
            )
        stats, num_generated = round_.stats, sum(len(chunk.token_ids) for chunk in chunks)
        if num_generated < stats.num_generated:
            forced = min(stats.num_forced, num_generated)
            num_accepted = min(stats.num_accepted, num_generated - forced)
            stats = replace(
                stats, num_accepted=num_accepted, num_generated=num_generated, num_forced=forced
            )
        self.stats.rounds.append(stats)
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
                parse=None if self._text.stopped or has_called else self._parser(),
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
