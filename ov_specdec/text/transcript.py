"""Answers as they were generated, so that a later turn of a conversation reads the same ids.

A text that a model has sampled does not always encode to the ids that were drawn: "ab" may come as
"a" and "b". Encoded anew, an answer would no longer be what the model has written, and a KV cache
that holds it could not be used again.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ov_specdec.text.messages import Message, text_of

MAX_ANSWERS = 1024
"""Most recent answers that are kept: a conversation of so many turns exceeds most contexts."""

CONTEXT_TOKENS = 8
"""Tokens on either side of an answer that are decoded with it: decoders drop the first space of a
text, and read bytes on both sides of a boundary as one character."""

Decode = Callable[[Sequence[int]], str]


@dataclass(frozen=True)
class EncodedText:
    """A text, its ids, and for each of them where in the text its characters begin and end."""

    text: str
    ids: list[int]
    offsets: list[tuple[int, int]]

    def find(self, content: str, position: int) -> tuple[int, int]:
        """Where a content, or what many templates strip it to, begins and ends from a position on.

        An empty range at the position if it is not there.
        """
        for written in (content, content.strip()):
            if written and (start := self.text.find(written, position)) >= 0:
                return start, start + len(written)
        return position, position

    def tokens_of(self, start: int, end: int) -> tuple[int, int] | None:
        """The range of tokens that is text[start:end]; None if one lies across an end of it."""
        first = bisect_left(self.offsets, start, key=lambda offset: offset[0])
        last = bisect_left(self.offsets, end, lo=first, key=lambda offset: offset[0])
        # What comes before a token may reach into it.
        crossed = ((first, start), (last, end))
        if any(index > 0 and self.offsets[index - 1][1] > place for index, place in crossed):
            return None
        return first, last


class Transcript:
    """The ids of the most recent answers, by their text."""

    def __init__(self, max_answers: int = MAX_ANSWERS) -> None:
        self._answers: OrderedDict[tuple[str, int | None], tuple[int, ...]] = OrderedDict()
        self._max_entries = 2 * max_answers

    def remember(self, text: str, ids: Sequence[int], *, start: int) -> None:
        """Keep an answer's ids. start: how many tokens its prompt had.

        What was generated beyond the text, such as an end-of-sequence token, may be among the ids.
        """
        # Two answers may have the same text and other ids: they begin at other places.
        for key in ((text, start), (text, None)):
            self._answers[key] = tuple(ids)
            self._answers.move_to_end(key)
        while len(self._answers) > self._max_entries:
            self._answers.popitem(last=False)

    def restore(
        self, rendered: EncodedText, messages: Sequence[Message], decode: Decode
    ) -> list[int]:
        """The ids of a rendered conversation, with the answers in it as they were generated.

        An answer that the template has changed, or that shares a token with what stands around it,
        keeps the ids that its text encodes to. decode: with special tokens kept.
        """
        ids: list[int] = []
        num_read = 0  # tokens of `rendered` that `ids` stands for
        position = 0  # where in the text to look for the next message
        for message in messages:
            content = text_of(message) or ""
            start, end = rendered.find(content, position)
            position = end
            span = rendered.tokens_of(start, end)
            if message["role"] != "assistant" or start == end or span is None:
                continue
            first, last = span
            before = ids + rendered.ids[num_read:first]
            kept = _as_written(
                self._recall(content, start=len(before)),
                rendered.ids[first:last],
                before[-CONTEXT_TOKENS:],
                rendered.ids[last : last + CONTEXT_TOKENS],
                decode,
            )
            if kept is not None:
                ids, num_read = [*before, *kept], last
        return ids + rendered.ids[num_read:]

    def _recall(self, text: str, *, start: int) -> tuple[int, ...]:
        here = self._answers.get((text, start))
        return here or self._answers.get((text, None), ())


def _as_written(
    generated: Sequence[int],
    encoded: Sequence[int],
    before: Sequence[int],
    after: Sequence[int],
    decode: Decode,
) -> Sequence[int] | None:
    """The generated ids without those at the end that are no part of the text; None if they differ.

    encoded: what the text encodes to. before, after: ids that stand around it.
    """
    wanted = decode([*before, *encoded, *after])
    for size in range(len(generated), 0, -1):
        text = decode([*before, *generated[:size], *after])
        if text == wanted:
            return generated[:size]
        if len(text) < len(wanted):
            break
    return None
