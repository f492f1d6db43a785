"""Keeps the ids of a salt's conversations, so that later turns use the same ids.

A sampled text does not always encode to the ids that were drawn: a model may write "ab" as "a" and
"b". If a later turn encoded the answer again, its ids would differ, and the KV cache of the
earlier turn could not be reused. Only prompts of the same salt may see what was generated: the ids
of others depend on their messages alone.

Nor does a template always write calls and reasoning as the model did: it may trim lines, or spell a
string of JSON in another way. Where it writes all of such an answer, that text stands for its ids.
"""

from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from ov_specdec.errors import OptionError
from ov_specdec.text.detokenizer import REPLACEMENT, CharacterStream, PieceAfter, as_text

Render = Callable[[Mapping[str, Any]], str]
"""Renders the messages of a prompt with an answer after them."""

MAX_TEXTS = 512
"""Recent prompts and conversations that are kept."""

MAX_TOKENS = 1_048_576
"""Tokens of all kept texts together. An id takes 4 bytes, and its text about as many."""


@dataclass(frozen=True)
class EncodedText:
    """A text, its ids, and the span of characters of each id."""

    text: str
    ids: list[int]
    offsets: list[tuple[int, int]]

    def token_at(self, position: int) -> int | None:
        """The number of tokens before this character; None if it is within a token."""
        index = bisect_left(self.offsets, position, key=lambda offset: offset[0])
        is_within = index > 0 and self.offsets[index - 1][1] > position
        return None if is_within else index


@dataclass(frozen=True)
class _Conversation:
    """A text with its ids. cuts: ends of generated tokens, as (characters, ids) before each.

    render: of a prompt. An answer with calls or reasoning may have another text in the template:
    message: what renders to that. end: the token after it. start: characters before it.
    """

    text: str
    ids: "array[int]"
    cuts: tuple[tuple[int, int], ...] = ()
    render: Render | None = None
    message: Mapping[str, Any] | None = None
    end: str = ""
    start: int = 0

    def before(self, later: str) -> "_Conversation":
        """With the text of the template, if that is whole and may be the beginning of `later`."""
        if self.render is None or self.message is None:
            return self
        if not later.startswith(self.text[: self.start]):
            return self
        text = ""
        with suppress(OptionError):  # such as for a call without an id
            text = self.render(self.message)
        size, reasoning = text.rfind(self.end), self.message.get("reasoning_content") or ""
        if size < self.start or reasoning.strip() not in text[self.start : size]:
            return replace(self, message=None)
        text = text[:size]
        shared = min(_num_shared(self.text, text), size - 1)
        cuts = [cut for cut in self.cuts if cut[0] <= shared]
        return _Conversation(text, self.ids, (*cuts, (size, len(self.ids))))


class GeneratedTokens:
    """The ids of the most recent conversations, by their salt. Thread-safe."""

    def __init__(self, max_texts: int = MAX_TEXTS, max_tokens: int = MAX_TOKENS) -> None:
        self._kept: OrderedDict[tuple[str, bytes], _Conversation] = OrderedDict()
        self._max_texts, self._max_tokens = max_texts, max_tokens
        self._num_tokens = 0
        self._lock = Lock()

    def restore(self, encoded: EncodedText, salt: str, render: Render | None = None) -> list[int]:
        """The ids of a rendered conversation, where answers have the ids that were generated.

        It begins with the ids of the kept text that has the longest prefix in common with it, up to
        the last generated token in there. render: for answers with a message.
        """
        with self._lock:
            first, cuts, ids = 0, tuple[tuple[int, int], ...](), encoded.ids
            for key in [key for key in self._kept if key[0] == salt]:
                kept = self._kept[key] = self._kept[key].before(encoded.text)
                end = kept.cuts[0][0] if kept.cuts else len(kept.text)
                if not encoded.text.startswith(kept.text[:end]):
                    continue
                shared = _num_shared(kept.text, encoded.text)
                num_cuts = bisect_left(kept.cuts, (shared + 1, 0))
                for index in range(num_cuts, 0, -1):
                    position, num_ids = kept.cuts[index - 1]
                    if position <= first:
                        break
                    if (start := encoded.token_at(position)) is not None:
                        first, cuts = position, kept.cuts[:index]
                        ids = [*kept.ids[:num_ids], *encoded.ids[start:]]
                        break
                if shared == len(kept.text):  # continued by this one
                    self._forget(key)
            self._keep(salt, _Conversation(encoded.text, array("i", ids), cuts, render))
        return ids

    def remember(
        self,
        text: str | None,
        ids: Sequence[int],
        piece_after: PieceAfter,
        *,
        prompt: Sequence[int],
        salt: str,
        message: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep an answer's ids. prompt: the ids that it continued, as `restore` returned them.

        The ids may go beyond the text, for example by an end-of-sequence token. text: None for all
        of them. message: of an answer with calls or reasoning, whose last token ended it.
        """
        with self._lock:
            before = self._kept.get((salt, array("i", prompt).tobytes()))
            if before is None:  # forgotten meanwhile
                return
            cuts, answer, num_ids, is_whole = list(before.cuts), "", len(prompt), True
            characters = CharacterStream(piece_after, prompt)
            for token in ids if message is None else ids[:-1]:
                new = characters.push(token)
                if text is not None and not text.startswith(new, len(answer)):
                    break
                answer, num_ids, is_whole = answer + new, num_ids + 1, characters.is_whole
                if is_whole:
                    cuts.append((len(before.text) + len(answer), num_ids))
            if not is_whole and text == answer + REPLACEMENT:  # an unfinished character
                answer = text
                cuts.append((len(before.text) + len(answer), num_ids))
            if cuts:
                size, num_ids = cuts[-1]
                generated = array("i", [*prompt, *ids][:num_ids])
                whole, end = (before.text + answer)[:size], ""
                if message is not None:
                    end = as_text(piece_after(generated[-1], ids[-1]))
                told = before.render, message, end, len(before.text)
                self._keep(salt, _Conversation(whole, generated, tuple(cuts), *told))

    def _keep(self, salt: str, text: _Conversation) -> None:
        """Store a text as the latest. The caller holds the lock, here and below."""
        key = salt, text.ids.tobytes()
        self._forget(key)
        self._kept[key] = text
        self._num_tokens += len(text.ids)
        while len(self._kept) > self._max_texts or self._num_tokens > self._max_tokens:
            self._forget(next(iter(self._kept)))

    def _forget(self, key: tuple[str, bytes]) -> None:
        if (text := self._kept.pop(key, None)) is not None:
            self._num_tokens -= len(text.ids)


def _num_shared(one: str, other: str) -> int:
    """Length of the longest prefix that two texts have in common."""
    sizes = range(1, min(len(one), len(other)) + 1)
    return bisect_left(sizes, True, key=lambda size: one[:size] != other[:size])
