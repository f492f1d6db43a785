"""Output text as it grows: up to the first stop string, and nothing that may become one."""

from collections.abc import Sequence

from ov_specdec.text.characters import CharacterStream, Decode


class IncrementalDetokenizer:
    """Turns token ids into text that may be shown: whole characters, and nothing of a stop string.

    `text` is the output so far, cut before the first stop string, or after it where it is to be
    included; `stopped` says whether there was one. Text is held back while it may still become part
    of a longer character or a stop string.
    """

    def __init__(
        self,
        decode: Decode,
        prompt: Sequence[int],
        stop_strings: Sequence[str] = (),
        includes_stop: bool = False,
    ) -> None:
        self._characters = CharacterStream(decode, prompt)
        self._stop_strings = stop_strings
        self._includes_stop = includes_stop
        self._num_shown = 0
        self.text = ""
        self.stopped = False

    def push(self, tokens: Sequence[int]) -> int:
        """Add tokens, up to the one that completes a stop string; returns how many were added."""
        for count, token in enumerate(tokens, start=1):
            self._add(self._characters.push(token))
            if self.stopped:
                return count
        return len(tokens)

    def take(self) -> str:
        """The text that may be shown now and has not been taken before."""
        end = len(self.text) if self.stopped else len(self.text) - self._length_of_stop_prefix()
        return self._take_until(end)

    def finish(self) -> str:
        """What is left when the output has ended, an unfinished character included."""
        if not self.stopped:
            self._add(self._characters.finish())
        return self._take_until(len(self.text))

    def _add(self, new: str) -> None:
        """Take over some text, and look for stop strings in it."""
        longest = max(map(len, self._stop_strings), default=1)
        search_from = max(0, len(self.text) - longest + 1)
        self.text += new
        found = [(self.text.find(stop, search_from), len(stop)) for stop in self._stop_strings]
        if hits := [(start, length) for start, length in found if start >= 0]:
            start, length = min(hits)
            self.text = self.text[: start + length * self._includes_stop]
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
