"""Answers as they were generated, so that a later turn of a conversation reads the same ids.

A text that a model has sampled does not always encode to the ids that were drawn: "ab" may come as
"a" and "b". Encoded anew, an answer would no longer be what the model has written, and a KV cache
that holds it could not be used again.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock

from ov_specdec.errors import OptionError
from ov_specdec.text.messages import Message, text_of

MAX_ANSWERS = 1024
"""Most recent answers that are kept: a conversation of so many turns exceeds most contexts."""

CONTEXT_TOKENS = 8
"""Tokens on either side of an answer that are decoded with it: decoders drop the first space of a
text, and read bytes on both sides of a boundary as one character."""

MARK = "\ue000answer\ue000"
"""Stands for an answer; the characters around the word are for private use."""

Decode = Callable[[Sequence[int]], str]
Render = Callable[[Sequence[Message]], str]


@dataclass(frozen=True)
class EncodedText:
    """A text, its ids, and for each of them where in the text its characters begin and end."""

    text: str
    ids: list[int]
    offsets: list[tuple[int, int]]

    def tokens_of(self, start: int, end: int) -> tuple[int, int] | None:
        """The range of tokens that is text[start:end]; None if one lies across an end of it."""
        first = bisect_left(self.offsets, start, key=lambda offset: offset[0])
        last = bisect_left(self.offsets, end, lo=first, key=lambda offset: offset[0])
        # What comes before a token may reach into it.
        crossed = ((first, start), (last, end))
        if any(index > 0 and self.offsets[index - 1][1] > place for index, place in crossed):
            return None
        return first, last


class GeneratedTokens:
    """The ids of the most recent answers, by their text and what they continued.

    So the ids of a prompt follow from its own conversation and nothing else, whoever else is
    served. salt: keeps conversations apart that others must learn nothing of. May be used from
    several threads.
    """

    def __init__(self, max_answers: int = MAX_ANSWERS) -> None:
        self._answers: OrderedDict[tuple[str | None, str, int | None], Sequence[int]]
        self._answers = OrderedDict()
        self._max_entries = 2 * max_answers
        self._lock = Lock()

    def remember(
        self, text: str, ids: Sequence[int], *, prompt: Sequence[int], salt: str | None = None
    ) -> None:
        """Keep an answer's ids. prompt: those that it was generated after.

        What was generated beyond the text, such as an end-of-sequence token, may be among the ids.
        """
        with self._lock:
            self._keep(text, prompt, salt, tuple(ids))
            while len(self._answers) > self._max_entries:
                self._answers.popitem(last=False)

    def restore(
        self,
        encoded: EncodedText,
        messages: Sequence[Message],
        render: Render,
        decode: Decode,
        salt: str | None = None,
    ) -> list[int]:
        """The ids of a rendered conversation, with the answers in it as they were generated.

        An answer that continued another prompt, that the template has changed, or that shares a
        token with what stands around it, keeps the ids that its text encodes to. render: what has
        made the encoded text of the messages. decode: with special tokens kept.
        """
        ids: list[int] = []
        num_read = 0  # tokens of `encoded` that `ids` stands for
        for content, start, end in self._find_answers(encoded.text, messages, render, salt):
            if (span := encoded.tokens_of(start, end)) is None:
                continue
            first, last = span
            before = ids + encoded.ids[num_read:first]
            kept = _as_written(
                self._recall(content, before, salt),
                encoded.ids[first:last],
                before[-CONTEXT_TOKENS:],
                encoded.ids[last : last + CONTEXT_TOKENS],
                decode,
            )
            if kept is not None:
                ids, num_read = [*before, *kept], last
        return ids + encoded.ids[num_read:]

    def _find_answers(
        self, text: str, messages: Sequence[Message], render: Render, salt: str | None
    ) -> Iterator[tuple[str, int, int]]:
        """The contents of known answers, each with where in the text it begins and ends.

        What stands between them is found by rendering the conversation with a mark in the place of
        each: an answer may be a word that the template has too.
        """
        known = {
            index: content
            for index, message in enumerate(messages)
            if message["role"] == "assistant"
            and (content := text_of(message))
            and (salt, content, None) in self._answers
        }
        if not known:
            return
        marked = [
            {**message, "content": MARK} if index in known else message
            for index, message in enumerate(messages)
        ]
        try:
            between = render(marked).split(MARK)
        except OptionError:  # the template wants contents of some form
            return
        if len(between) != len(known) + 1:  # the template drops some, or repeats them
            return
        position = 0
        for content, template_text in zip(known.values(), between, strict=False):
            if (found := text.find(template_text, position)) < 0:
                return
            position = found + len(template_text)
            if place := _place(text, content, position):
                yield content, *place
                position = place[1]

    def _recall(self, text: str, prompt: Sequence[int], salt: str | None) -> Sequence[int]:
        with self._lock:
            ids = self._answers.get((salt, text, hash(tuple(prompt))), ())
            if ids:  # a conversation that goes on is not forgotten
                self._keep(text, prompt, salt, ids)
        return ids

    def _keep(self, text: str, prompt: Sequence[int], salt: str | None, ids: Sequence[int]) -> None:
        """Have an answer among the latest, and its text, by which answers are looked for.

        The lock is held.
        """
        for key, value in (((salt, text, None), ()), ((salt, text, hash(tuple(prompt))), ids)):
            self._answers[key] = value
            self._answers.move_to_end(key)


def _place(text: str, content: str, start: int) -> tuple[int, int] | None:
    """Where a content begins and ends that was put into a text at a place; None if it was changed.

    Many templates strip it, and some write a space before it that answers begin with.
    """
    indent = len(content) - len(content.lstrip())
    for begin in (start, start - indent):
        for written in (content, content.rstrip()):
            if written and text.startswith(written, begin):
                return begin, begin + len(written)
    return None


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
