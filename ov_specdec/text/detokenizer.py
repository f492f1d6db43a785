"""Output text as it grows: tokens become text, and stop strings end it."""

from collections.abc import Callable, Sequence

REPLACEMENT = "\ufffd"
"""What a decoder writes in the place of bytes that are no whole character (yet)."""

MAX_UNFINISHED = 3
"""Most tokens that can wait for the last byte of a character of UTF-8."""

MAX_WAITING = 8
"""Tokens that wait for the end of a character, from which on those that are none are given up."""

CONTEXT_TOKENS = 8
"""Tokens of the prompt that are decoded before the first of the output, or more: see `_context`."""

Decode = Callable[[Sequence[int]], str]


class IncrementalDetokenizer:
    """Turns token ids into text that may be shown: whole characters, and nothing of a stop string.

    `text` is the output so far, cut before the first stop string; `stopped` says whether there was
    one. Text is held back while it may still become part of a longer character or a stop string.
    The incremental decoding follows text-generation-inference: decode a short window of tokens with
    and without the new ones, and take the difference. The window always begins and ends between
    two characters, so that the pieces add up to what all ids decode to at once. A character that
    the prompt's ids leave unfinished belongs to the output.

    Where ids are no valid text, decoders that fall back to bytes give up the whole run of bytes,
    with characters that were shown before; here those stay, and only what follows is given up.
    """

    def __init__(
        self,
        decode: Decode,
        prompt: Sequence[int],
        stop_strings: Sequence[str] = (),
    ) -> None:
        self._decode = decode
        self._stop_strings = stop_strings
        self._window = _context(decode, prompt)
        self._num_decoded = _count_whole(decode, self._window)
        self._num_shown = 0
        self.text = ""
        self.stopped = False

    def push(self, tokens: Sequence[int]) -> int:
        """Add tokens, up to the one that completes a stop string; returns how many were added."""
        for count, token in enumerate(tokens, start=1):
            self._window.append(token)
            new = self._undecoded()
            if new and not new.endswith(REPLACEMENT):
                self._advance(new, len(self._window))
            elif new and len(self._window) - self._num_decoded > MAX_WAITING:
                self._give_up(new)
            if self.stopped:
                return count
        return len(tokens)

    def take(self) -> str:
        """The text that may be shown now and has not been taken before."""
        end = len(self.text) if self.stopped else len(self.text) - self._length_of_stop_prefix()
        return self._take_until(end)

    def finish(self) -> str:
        """What is left when the output has ended, an unfinished character included."""
        if not self.stopped and (new := self._undecoded()):
            self._advance(new, len(self._window))
        return self._take_until(len(self.text))

    def _undecoded(self, end: int | None = None) -> str:
        """The text of the tokens that are not decoded yet. end: of those that count; None: all."""
        tokens = self._window[:end]
        known = self._decode(tokens[: self._num_decoded])
        with_new = self._decode(tokens)
        if with_new.startswith(known):
            return with_new[len(known) :]
        # Bytes that are no character (yet) have spoilt those before them.
        return self._decode(tokens[self._num_decoded :])

    def _give_up(self, new: str) -> None:
        """Take over what can be no character any more; the last tokens may still become one.

        new: the text of all that wait. Without this, a run of bytes would be decoded anew for each.
        """
        last = len(self._window) - MAX_UNFINISHED
        for end in range(last, last - MAX_UNFINISHED, -1):
            text = self._undecoded(end)
            if new == text + self._decode(self._window[end:]):  # else it is within a character
                self._advance(text, end)
                return

    def _advance(self, new: str, end: int) -> None:
        """Take over the text of the tokens up to `end`, and look for stop strings in it."""
        longest = max(map(len, self._stop_strings), default=1)
        search_from = max(0, len(self.text) - longest + 1)
        self.text += new
        self._window = self._window[self._num_decoded :]
        self._num_decoded = end - self._num_decoded
        found = [self.text.find(stop, search_from) for stop in self._stop_strings]
        if hits := [position for position in found if position >= 0]:
            self.text = self.text[: min(hits)]
            self.stopped = True

    def _length_of_stop_prefix(self) -> int:
        """Length of the longest end of the text that a stop string begins with."""
        ends = (
            size
            for stop in self._stop_strings
            for size in range(len(stop) - 1, 0, -1)
            if self.text.endswith(stop[:size])
        )
        return max(ends, default=0)

    def _take_until(self, end: int) -> str:
        text = self.text[self._num_shown : end]
        self._num_shown = max(self._num_shown, end)
        return text


def _context(decode: Decode, prompt: Sequence[int]) -> list[int]:
    """The end of a prompt that decodes to some text and begins with a whole character.

    Decoders drop the space before the first token, so there has to be one before the output's.
    """
    size = CONTEXT_TOKENS
    while size < len(prompt):
        text = decode(prompt[-size:])
        if text and not text.startswith(REPLACEMENT):
            return list(prompt[-size:])
        size *= 2
    return list(prompt)


def _count_whole(decode: Decode, tokens: Sequence[int]) -> int:
    """How many of some tokens come before a character that they leave unfinished."""
    for size in range(len(tokens), max(len(tokens) - MAX_UNFINISHED, 0) - 1, -1):
        if not decode(tokens[:size]).endswith(REPLACEMENT):
            return size
    return len(tokens)
