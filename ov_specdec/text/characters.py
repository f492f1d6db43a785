"""Whole characters from tokens, as they come."""

from collections.abc import Callable, Sequence

REPLACEMENT = "\ufffd"
"""What a decoder writes in the place of bytes that are no whole character (yet)."""

MAX_UNFINISHED = 3
"""Most tokens that can wait for the last byte of a character of UTF-8."""

MAX_WAITING = 8
"""Tokens that wait for the end of a character, from which on those that are none are given up."""

CONTEXT_TOKENS = 8
"""Tokens of the prompt that are decoded before the first of the output."""

MAX_KNOWN = 4
"""Tokens that are decoded again beside a new one: four take as long as one, eight twice as long."""

Decode = Callable[[Sequence[int]], str]


class CharacterStream:
    """Turns token ids into text, whole characters at a time; the pieces add up to that of all ids.

    As in text-generation-inference, a short window of ids is decoded with and without the new ones,
    and the difference is taken. Here the window begins and ends between two characters, for
    decoders that fall back to bytes give up a whole run of bytes where one character is broken.
    What such a run has shown before stays, and only what follows is given up. Time is linear in the
    number of ids. A character that the prompt's ids leave unfinished belongs to the output.
    """

    def __init__(self, decode: Decode, prompt: Sequence[int]) -> None:
        self._decode = decode
        self._window: list[int] = []
        # So many ids of the window are no news, and this text of it: that of those ids.
        self._num_known = 0
        self._known = ""
        self._waiting = ""  # the text of the other ids
        self._decoded = ""  # what the window, or its beginning, was last decoded to
        for token in _context(decode, prompt):
            self.push(token)
        if len(self._window) - self._num_known > MAX_UNFINISHED:  # no character will come of it
            self.finish()

    def push(self, token: int) -> str:
        """Add an id; the text that is whole with it, or nothing."""
        self._window.append(token)
        new = self._undecoded()
        # Bytes that fall back are one replacement each until they are a character, maybe that one.
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
        """The text of what waits, an unfinished character included."""
        return self._advance(self._undecoded(), len(self._window))

    def _undecoded(self, end: int | None = None) -> str:
        """The text of the ids that are news. end: of those that count; None: all."""
        self._decoded = self._decode(self._window[:end])
        if self._decoded.startswith(self._known):
            return self._decoded[len(self._known) :]
        # Bytes that are no character (yet) have spoilt those before them.
        return self._decode(self._window[self._num_known : end])

    def _give_up(self, new: str) -> str:
        """Take over what can be no character any more; the last ids may still become one.

        new: the text of all that wait. Without this, a run of bytes would be decoded anew for each.
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
        """Take over the text of the ids up to `end`, which were decoded last.

        Those before them leave the window, at the latest once they are many: until then the text of
        all is known without decoding anything again.
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
        """Take over all but the last characters, which the last ids hold, though not alone."""
        self._window = self._window[-num_tokens:]
        self._num_known = 0
        self._known = self._decode(self._window)[:-num_unfinished]
        self._waiting = new[-num_unfinished:]
        return new[:-num_unfinished]


def _context(decode: Decode, prompt: Sequence[int]) -> list[int]:
    """The end of a prompt, as far as it is text, from the beginning of a character on.

    Decoders drop the space before the first token, so there has to be one before the output's.
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
    """Whether the first of some ids are a character, be it that which stands for broken ones."""
    texts = [decode(tokens[:size]) for size in range(1, MAX_UNFINISHED + 2)]
    return any(
        text and (not text.startswith(REPLACEMENT) or len(text) < size)
        for size, text in enumerate(texts, start=1)
    )


def _has_no_text(decode: Decode, token: int) -> bool:
    """Whether an id adds nothing to a text. Twice, because decoders drop a first space."""
    return decode([token, token]) == ""
