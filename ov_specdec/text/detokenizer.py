"""Incremental detokenization: output text up to the first stop string."""

from collections import deque
from collections.abc import Sequence

from ov_specdec.text.characters import CharacterStream, Decode
from ov_specdec.text.stop_strings import StopString


class IncrementalDetokenizer:
    """Turns token ids into text that may be shown: whole characters, no part of a stop string.

    `stop_string` is the one that was found, if any. The text ends before it, or after it if the
    output includes it. Text that may still become part of a character or stop string is held back.
    """

    def __init__(
        self,
        decode: Decode,
        prompt: Sequence[int],
        stop_strings: Sequence[str] = (),
        includes_stop: bool = False,
    ) -> None:
        self._characters = CharacterStream(decode, prompt)
        self._stop_strings = [StopString(stop) for stop in stop_strings]
        self._includes_stop = includes_stop
        self._held: deque[str] = deque()
        self._num_held = 0
        self.stop_string: str | None = None

    @property
    def stopped(self) -> bool:
        """Whether there was a stop string."""
        return self.stop_string is not None

    def push(self, tokens: Sequence[int]) -> int:
        """Add tokens up to the one that completes a stop string. Returns how many were added."""
        for count, token in enumerate(tokens, start=1):
            self._add(self._characters.push(token))
            if self.stopped:
                return count
        return len(tokens)

    def take(self) -> str:
        """The text that may be shown now and has not been taken before."""
        undecided = (stop.num_matched for stop in self._stop_strings)
        return self._take(0 if self.stopped else max(undecided, default=0))

    def finish(self) -> str:
        """The rest of the text once the output has ended, an unfinished character included."""
        if not self.stopped:
            self._add(self._characters.finish())
        return self._take(0)

    def _add(self, new: str) -> None:
        """Append text, and search it for stop strings."""
        self._held.append(new)
        self._num_held += len(new)
        if not self._stop_strings:
            return
        found = [(stop.find(new), stop.text) for stop in self._stop_strings]
        hits = [(start, len(text), text) for start, text in found if start is not None]
        if hits:
            start, length, self.stop_string = min(hits)
            end = self._num_held - len(new) + start + length * self._includes_stop
            self._held = deque(["".join(self._held)[:end]])
            self._num_held = end

    def _take(self, num_kept: int) -> str:
        """Remove and return the held text, except for its last `num_kept` characters."""
        taken = []
        while (excess := self._num_held - num_kept) > 0:
            piece = self._held.popleft()
            if len(piece) > excess:
                self._held.appendleft(piece[excess:])
            taken.append(piece[:excess])
            self._num_held -= len(taken[-1])
        return "".join(taken)
