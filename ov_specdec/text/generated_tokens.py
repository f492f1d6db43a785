"""Keeps the ids of generated answers, so that later turns of a conversation use the same ids.

A sampled text does not always encode to the ids that were drawn: a model may write "ab" as "a" and
"b". If a later turn encoded the answer again, its ids would differ, and the KV cache of the
earlier turn could not be reused.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from threading import Lock

from ov_specdec.errors import OptionError
from ov_specdec.text.messages import Message, text_of

MAX_ANSWERS = 1024
"""Recent answers kept: a conversation with as many turns exceeds most contexts."""

MAX_TOKENS = 1_048_576
"""Tokens of all kept answers together: some conversations of whole contexts, or 1,024 tokens for
each answer. An id takes 4 bytes, and its text about as many."""

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


class _Prefix:
    """Ids that grow, and their digest, for which no id is read twice."""

    def __init__(self, ids: Sequence[int] = ()) -> None:
        self.ids: list[int] = []
        self._hash = blake2b(digest_size=16)
        self.extend(ids)

    def extend(self, ids: Sequence[int]) -> None:
        """Append ids."""
        self.ids.extend(ids)
        self._hash.update(_compact(ids))

    def digest(self) -> bytes:
        """The digest of all ids."""
        return self._hash.digest()


class GeneratedTokens:
    """The ids of the most recent answers, by their text and the prompt that they continued.

    The ids of a prompt thus depend on its own conversation alone. salt: separates tenants.
    Thread-safe.
    """

    def __init__(self, max_answers: int = MAX_ANSWERS, max_tokens: int = MAX_TOKENS) -> None:
        self._answers: OrderedDict[tuple[str | None, str, bytes | None], Sequence[int]]
        self._answers = OrderedDict()
        self._max_entries, self._max_tokens = 2 * max_answers, max_tokens
        self._num_tokens = 0
        self._lock = Lock()

    def remember(
        self, text: str, ids: Sequence[int], *, prompt: Sequence[int], salt: str | None = None
    ) -> None:
        """Keep an answer's ids. prompt: the ids that it continued.

        The ids may go beyond the text, for example by an end-of-sequence token.
        """
        prefix = _Prefix(prompt).digest()
        with self._lock:
            self._keep(text, prefix, salt, _compact(ids))
            while self._is_full:
                _, forgotten = self._answers.popitem(last=False)
                self._num_tokens -= len(forgotten)

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
        prefix = _Prefix()
        num_read = 0  # tokens of `encoded` that the prefix replaces
        for content, start, end in self._find_answers(encoded.text, messages, render, salt):
            if (span := encoded.tokens_of(start, end)) is None:
                continue
            first, last = span
            prefix.extend(encoded.ids[num_read:first])
            num_read = first
            kept = _as_written(
                self._recall(content, prefix.digest(), salt),
                encoded.ids[first:last],
                prefix.ids[-CONTEXT_TOKENS:],
                encoded.ids[last : last + CONTEXT_TOKENS],
                decode,
            )
            if kept is not None:
                prefix.extend(kept)
                num_read = last
        return prefix.ids + encoded.ids[num_read:]

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

    def _recall(self, text: str, prefix: bytes, salt: str | None) -> Sequence[int]:
        with self._lock:
            ids = self._answers.get((salt, text, prefix), ())
            if ids:  # keep a conversation that continues
                self._keep(text, prefix, salt, ids)
        return ids

    @property
    def _is_full(self) -> bool:
        return len(self._answers) > self._max_entries or self._num_tokens > self._max_tokens

    def _keep(self, text: str, prefix: bytes, salt: str | None, ids: Sequence[int]) -> None:
        """Store an answer as the latest, and its text for lookups. The caller holds the lock."""
        for key, value in (((salt, text, None), ()), ((salt, text, prefix), ids)):
            self._num_tokens += len(value) - len(self._answers.pop(key, ()))
            self._answers[key] = value


def _compact(ids: Sequence[int]) -> "array[int]":
    """Token ids in 4 bytes each."""
    return array("i", ids)


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
    if not generated:
        return None

    def written(size: int) -> str:
        return decode([*before, *generated[:size], *after])

    wanted, most = decode([*before, *encoded, *after]), len(generated)
    if len(written(max(most - CONTEXT_TOKENS, 0))) > len(wanted):  # more than an end or two
        sizes = range(most)
        longer = bisect_right(sizes, len(wanted), key=lambda size: len(written(size)))
        # A text may be longer within a character than behind it.
        most = min(longer + CONTEXT_TOKENS, most)
    for size in range(most, 0, -1):
        text = written(size)
        if text == wanted:
            return generated[:size]
        if len(text) < len(wanted):
            break
    return None
