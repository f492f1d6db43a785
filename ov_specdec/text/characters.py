"""Decode a stream of tokens into whole characters."""

from collections.abc import Callable, Sequence

REPLACEMENT = "\ufffd"
"""A decoder writes it instead of bytes that form no whole character (yet)."""

MAX_UNFINISHED = 3
"""Maximum number of tokens that hold the first bytes of one UTF-8 character."""

MAX_WAITING = 8
"""Above this number of waiting tokens, bytes that can no longer form a character are decoded."""

CONTEXT_TOKENS = 8
"""Tokens of the prompt that are decoded together with the first output token."""

MAX_KNOWN = 4
"""Known tokens decoded again with a new one: four take as long as one, eight twice as long."""

Decode = Callable[[Sequence[int]], str]


class CharacterStream:
    """Turns token ids into text, whole characters at a time. The pieces add up to all text.

    As in text-generation-inference, a short window of ids is decoded with and without the new ones,
    and the difference is the new text. Here the window begins and ends between two characters:
    byte-fallback decoders replace a whole run of bytes where one character is broken. Text that was
    returned before never changes. Time is linear in the number of ids. A character that the prompt
    leaves unfinished belongs to the output.
    """

    def __init__(self, decode: Decode, prompt: Sequence[int]) -> None:
        self._decode = decode
        self._window: list[int] = []
        # The first `_num_known` ids of the window were returned already, as the text `_known`.
        self._num_known = 0
        self._known = ""
        self._waiting = ""  # the text of the other ids
        self._decoded = ""  # what the window, or its beginning, was last decoded to
        for token in _context(decode, prompt):
            self.push(token)
        if len(self._window) - self._num_known > MAX_UNFINISHED:  # no character will come of it
            self.finish()

    def push(self, token: int) -> str:
        """Add an id. Returns the text that it completes, or an empty one."""
        self._window.append(token)
        new = self._undecoded()
        # Fallback bytes decode to one U+FFFD each until they form a character, which may be U+FFFD.
        is_whole = not new.endswith(REPLACEMENT) or len(new) < len(self._waiting)
        if new and is_whole:
            return self._advance(new, len(self._window))
        if _has_no_text(self._decode, token):
            self._window.pop()
            return ""
        self._waiting = new
        num_unfinished = len(new) - len(new.rstrip(REPLACEMENT))
        if num_unfinished < len(new):  # the token ends one character and begins another
            return self._advance_within(new, num_unfinished, num_tokens=1)
        if new and len(self._window) - self._num_known > MAX_WAITING:
            return self._give_up(new)
        return ""

    def finish(self) -> str:
        """The text of the waiting ids, an unfinished character included."""
        return self._advance(self._undecoded(), len(self._window))

    def _undecoded(self, end: int | None = None) -> str:
        """The text of the new ids. end: of the first `end` ids of the window; None: all."""
        self._decoded = self._decode(self._window[:end])
        if self._decoded.startswith(self._known):
            return self._decoded[len(self._known) :]
        # Bytes that form no character (yet) have changed the text of those before them.
        return self._decode(self._window[self._num_known : end])

    def _give_up(self, new: str) -> str:
        """Return bytes that can no longer form a character; the last ids may still become one.

        new: the text of all waiting ids. Otherwise each token would decode the whole run again.
        """
        last = len(self._window) - MAX_UNFINISHED
        for end in range(last, last - MAX_UNFINISHED, -1):
            text = self._undecoded(end)
            if new == text + self._decode(self._window[end:]):  # else it is within a character
                self._advance(text, end)
                self._waiting = new[len(text) :]
                return text
        return self._advance_within(new, 1, num_tokens=MAX_UNFINISHED)

    def _advance(self, new: str, end: int) -> str:
        """Return the text of the ids up to `end`, which were decoded last.

        Earlier ids leave the window only once they exceed `MAX_KNOWN`: until then the known text
        need not be decoded again.
        """
        self._waiting = ""
        if self._num_known < MAX_KNOWN and self._decoded == self._known + new:
            self._num_known, self._known = end, self._decoded
            return new
        self._window = self._window[self._num_known :]
        self._num_known = end - self._num_known
        self._known = self._decode(self._window[: self._num_known])
        return new

    def _advance_within(self, new: str, num_unfinished: int, *, num_tokens: int) -> str:
        """Return all but the last characters, which share the last ids with others."""
        self._window = self._window[-num_tokens:]
        self._num_known = 0
        self._known = self._decode(self._window)[:-num_unfinished]
        self._waiting = new[-num_unfinished:]
        return new[:-num_unfinished]


def _context(decode: Decode, prompt: Sequence[int]) -> list[int]:
    """The last ids of a prompt that are text, from the beginning of a character.

    Decoders drop the space before the first token, so the output needs a token before its first.
    """
    last: list[int] = []
    for token in reversed(prompt):
        if len(last) == CONTEXT_TOKENS + MAX_UNFINISHED:
            break
        if not _has_no_text(decode, token):
            last.insert(0, token)
    starts = range(min(MAX_UNFINISHED + 1, len(last)))
    return last[next((s for s in starts if _begins_character(decode, last[s:])), 0) :]


def _begins_character(decode: Decode, tokens: Sequence[int]) -> bool:
    """Whether the first ids decode to a character, U+FFFD included."""
    texts = [decode(tokens[:size]) for size in range(1, MAX_UNFINISHED + 2)]
    return any(
        text and (not text.startswith(REPLACEMENT) or len(text) < size)
        for size, text in enumerate(texts, start=1)
    )


def _has_no_text(decode: Decode, token: int) -> bool:
    """Whether an id adds no text. It is decoded twice because decoders drop a first space."""
    return decode([token, token]) == ""
