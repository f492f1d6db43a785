"""Token ids to text as they come: whole characters, up to the first stop string."""

from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress, filterfalse, islice
from types import MappingProxyType

from ov_specdec.results.parts import CallEnd, Part, Text
from ov_specdec.text.answer_parser import AnswerParser

PieceAfter = Callable[[int | None, int], bytes]
"""The bytes that a token adds after another one, or (None) at the beginning of a text."""

REPLACEMENT = "\ufffd"
"""Decoders write it instead of bytes that form no character."""

MAX_UNFINISHED = 3
"""Maximum number of tokens that hold the first bytes of one UTF-8 character."""

CONTINUATION = bytes(range(0x80, 0xC0))
"""Bytes that continue a character."""


def as_text(piece: bytes) -> str:
    """The bytes of a token as text; those of a part of a character in Python's notation."""
    return piece.decode(errors="backslashreplace")


class CharacterStream:
    """Turns token ids into text, whole characters at a time.

    A character that the prompt leaves unfinished belongs to the output. Bytes that form no
    character become U+FFFD.
    """

    def __init__(self, piece_after: PieceAfter, prompt: Sequence[int]) -> None:
        self._piece_after = piece_after
        self._bytes = getincrementaldecoder("utf-8")("replace")
        self._last = prompt[-1] if prompt else None
        recent, begun = prompt[-MAX_UNFINISHED - 1 :], b""
        for index in reversed(range(len(recent))):
            before = recent[index - 1] if index else None
            begun = piece_after(before, recent[index]) + begun
            if begun.lstrip(CONTINUATION):  # what comes before is whole
                break
        self._bytes.decode(begun)

    def push(self, token: int) -> str:
        """Add an id. Returns the text that it completes, or an empty one."""
        before, self._last = self._last, token
        return self._bytes.decode(self._piece_after(before, token))

    @property
    def is_whole(self) -> bool:
        """Whether the ids so far end between two characters."""
        return not self._bytes.getstate()[0]

    def finish(self) -> str:
        """U+FFFD for a character that is unfinished at the end."""
        return self._bytes.decode(b"", final=True)


class IncrementalDetokenizer:
    """Turns token ids into text that may be shown: whole characters, no part of a stop string.

    hidden: the tokens that are not shown, with their names, which stop strings may contain.
    min_tokens: stop strings within so many tokens do not count. parser: of an answer whose text is
    its content only.

    `stop_string` is the one that was found, if any. The text ends before it, or after it if the
    output includes it. Text that may still become part of a character or stop string is held back.
    `has_called` says whether there was a whole call of a tool.
    """

    def __init__(
        self,
        piece_after: PieceAfter,
        prompt: Sequence[int],
        stop_strings: Sequence[str] = (),
        includes_stop: bool = False,
        hidden: Mapping[int, str] = MappingProxyType({}),
        min_tokens: int = 0,
        parser: AnswerParser | None = None,
    ) -> None:
        shown = islice(filterfalse(hidden.__contains__, reversed(prompt)), MAX_UNFINISHED + 1)
        self._characters = CharacterStream(piece_after, [*shown][::-1])
        self._parser = parser
        self._parts: list[Part] = []
        self._stop_strings = stop_strings
        self._includes_stop = includes_stop
        self._hidden = hidden
        self._num_ignored = min_tokens
        self._held = ""  # not taken yet
        self._is_shown: list[bool] = []  # for each character of `_held`
        self._num_shown = 0
        self.stop_string: str | None = None
        self.has_called = False

    def push(self, tokens: Sequence[int]) -> list[int]:
        """Add tokens up to the one that completes a stop string.

        Returns for each of them the characters of the text before it, without regard to stops.
        """
        offsets = []
        for token in tokens:
            offsets.append(self._num_shown)
            self._num_ignored -= 1
            if (name := self._hidden.get(token)) is not None:
                self._add(name, is_shown=False)
            elif self._parser is None:
                self._add(self._characters.push(token), is_shown=True)
            else:
                self._add_parts(self._parser.push(self._characters.push(token), token))
            if self.stop_string:
                break
        return offsets

    def take(self) -> tuple[str, tuple[Part, ...]]:
        """The text that may be shown now, and with a parser all parts; once each."""
        num_begun = 0
        for stop in () if self.stop_string else self._stop_strings:
            begun = [n for n in range(1, len(stop)) if self._held.endswith(stop[:n])]
            num_begun = max([num_begun, *begun])
        return self._take(len(self._held) - num_begun)

    def finish(self, *, is_cut: bool = False) -> tuple[str, tuple[Part, ...]]:
        """The rest, an unfinished character included. is_cut: see `AnswerParser.end`."""
        if not self.stop_string:
            rest, parser = self._characters.finish(), self._parser
            if parser is None:
                self._add(rest, is_shown=True)
            else:
                self._add_parts([*parser.push(rest, None), *parser.end(is_cut=is_cut)])
        return self._take(len(self._held))

    def _add_parts(self, parts: Iterable[Part]) -> None:
        """Add parts; no stop string goes across one that is no text."""
        for part in parts:
            if isinstance(part, Text):
                self._add(part.text, is_shown=True)
            else:
                self._show(len(self._held))
                self._parts.append(part)
                self.has_called |= isinstance(part, CallEnd)
            if self.stop_string:
                break

    def _add(self, new: str, is_shown: bool) -> None:
        """Append text, and search it for stop strings."""
        searched = len(self._held)
        self._held += new
        self._is_shown += [is_shown] * len(new)
        self._num_shown += len(new) * is_shown
        if self._num_ignored >= 0 or not self._stop_strings:
            return
        hits = [
            (start, len(stop), stop)
            for stop in self._stop_strings
            if (start := self._held.find(stop, max(searched - len(stop) + 1, 0))) >= 0
        ]
        if hits:
            start, length, self.stop_string = min(hits)
            self._held = self._held[: start + length * self._includes_stop]

    def _show(self, end: int) -> None:
        """Make a part of the held text up to `end`."""
        shown = "".join(compress(self._held[:end], self._is_shown))
        self._held, self._is_shown = self._held[end:], self._is_shown[end:]
        self._parts += [Text(shown)] * bool(shown)

    def _take(self, end: int) -> tuple[str, tuple[Part, ...]]:
        self._show(end)
        parts, self._parts = tuple(self._parts), []
        text = "".join([part.text for part in parts if isinstance(part, Text)])
        return text, parts if self._parser else ()
