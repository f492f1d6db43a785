"""Keeps the ids of generated answers, so that later turns of a conversation use the same ids.

A sampled text does not always encode to the ids that were drawn: a model may write "ab" as "a" and
"b". If a later turn encoded the answer again, its ids would differ, and the KV cache of the
earlier turn could not be reused.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock

from ov_specdec.errors import OptionError
from ov_specdec.text.messages import Message, text_of

MAX_ANSWERS = 1024
"""Recent answers kept: a conversation with as many turns exceeds most contexts."""

CONTEXT_TOKENS = 8
"""Tokens decoded on either side of an answer: decoders drop the first space of a text, and join
bytes on both sides of a boundary to one character."""

MARK = "\ue000answer\ue000"
"""Placeholder for an answer, between characters of Unicode's private use area."""

Decode = Callable[[Sequence[int]], str]
Render = Callable[[Sequence[Message]], str]


@dataclass(frozen=True)
class EncodedText:
    """A text, its ids, and the span of characters of each id."""

    text: str
    ids: list[int]
    offsets: list[tuple[int, int]]

    def tokens_of(self, start: int, end: int) -> tuple[int, int] | None:
        """The range of tokens of text[start:end]; None if a token crosses either end."""
        first = bisect_left(self.offsets, start, key=lambda offset: offset[0])
        last = bisect_left(self.offsets, end, lo=first, key=lambda offset: offset[0])
        # Characters before a token may extend into it.
        crossed = ((first, start), (last, end))
        if any(index > 0 and self.offsets[index - 1][1] > place for index, place in crossed):
            return None
        return first, last


class GeneratedTokens:
    """The ids of the most recent answers, by their text and the prompt that they continued.

    The ids of a prompt thus depend on its own conversation alone. salt: separates tenants.
    Thread-safe.
    """

    def __init__(self, max_answers: int = MAX_ANSWERS) -> None:
        self._answers: OrderedDict[tuple[str | None, str, int | None], Sequence[int]]
        self._answers = OrderedDict()
        self._max_entries = 2 * max_answers
        self._lock = Lock()

    def remember(
        self, text: str, ids: Sequence[int], *, prompt: Sequence[int], salt: str | None = None
    ) -> None:
        """Keep an answer's ids. prompt: the ids that it continued.

        The ids may go beyond the text, for example by an end-of-sequence token.
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
        """The ids of a rendered conversation, where answers have the ids that were generated.

        An answer keeps the ids of its encoded text if it continued another prompt, if the template
        changed it, or if it shares a token with the text around it. render: renders messages, as
        for `encoded`. decode: keeps special tokens.
        """
        ids: list[int] = []
        num_read = 0  # tokens of `encoded` that `ids` replaces
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
        """The contents of known answers, each with its span in the text.

        The conversation is rendered with a placeholder for each answer to find the text between
        them: an answer may be a word of the template.
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
            if ids:  # keep a conversation that continues
                self._keep(text, prompt, salt, ids)
        return ids

    def _keep(self, text: str, prompt: Sequence[int], salt: str | None, ids: Sequence[int]) -> None:
        """Store an answer as the latest, and its text for lookups. The caller holds the lock."""
        for key, value in (((salt, text, None), ()), ((salt, text, hash(tuple(prompt))), ids)):
            self._answers[key] = value
            self._answers.move_to_end(key)


def _place(text: str, content: str, start: int) -> tuple[int, int] | None:
    """The span of a content that a template wrote at `start`; None if the template changed it.

    Many templates strip it, and some add the space that answers begin with.
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
    """The generated ids without those after the end of the text; None if their text differs.

    encoded: the ids of the text. before, after: the ids around it.
    """
    wanted = decode([*before, *encoded, *after])
    for size in range(len(generated), 0, -1):
        text = decode([*before, *generated[:size], *after])
        if text == wanted:
            return generated[:size]
        if len(text) < len(wanted):
            break
    return None
