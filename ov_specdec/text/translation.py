"""A growing sequence of one tokenizer's ids, as ids of another."""

from collections.abc import Mapping, Sequence

from ov_specdec.text.pieces import PieceTokenizer

WINDOW = 4
"""Last ids, plus those back to a space, that are encoded again with new text: as parts of one word
they may change."""
MAX_WINDOW = 16
"""The same where there is no space, as in Chinese."""


class Translation:
    """Translates the main model's ids of a growing sequence to the draft model's ids.

    The draft's tokenizer encodes the text. When it grows, only a window at its end is encoded
    again, so all ids before it, and the draft's KV cache of them, stay valid. A special token maps
    to the draft's token of the same role, or is dropped.

    special: from the main model's special tokens to the draft's.
    """

    def __init__(
        self, main: PieceTokenizer, draft: PieceTokenizer, special: Mapping[int, int]
    ) -> None:
        self._main = main
        self._draft = draft
        self._special = special
        self.ids = list(self._draft.prefix)
        """The ids so far."""
        self.num_stable = len(self.ids)
        """The first ids, up to this number, will not change."""
        self.rest = b""
        """Bytes of an unfinished character at the end of the text, not encoded yet."""
        self._num_read = 0

    def read(self, tokens: Sequence[int]) -> None:
        """Translate these main ids, which begin with those of the last call."""
        piece = list[int]()
        for token in tokens[self._num_read :]:
            if self._main.bytes_of[token]:
                piece.append(token)
                continue
            self._append(self._main.decode(piece))
            piece = []
            self._append_special(token)
        self._append(self._main.decode(piece))
        self._num_read = len(tokens)

    def _append(self, text: bytes) -> None:
        text = self.rest + text
        size = whole_characters(text)
        text, self.rest = text[:size], text[size:]
        if text:
            window = self._draft.decode(self.ids[self.num_stable :])
            self.ids[self.num_stable :] = self._draft.encode(window + text)
            self.num_stable = self._window_start()

    def _append_special(self, token: int) -> None:
        self.ids += self._draft.encode(self.rest)
        self.rest = b""
        if token in self._special:
            self.ids.append(self._special[token])
        self.num_stable = len(self.ids)

    def _window_start(self) -> int:
        """The first id of the window, at least 1."""
        end = len(self.ids)
        first = max(end - MAX_WINDOW, self.num_stable, min(end, 1))
        for start in range(end - WINDOW, first, -1):
            if self._draft.bytes_of[self.ids[start]][:1].isspace():
                return start
        return first


def whole_characters(text: bytes) -> int:
    """The number of bytes before an unfinished UTF-8 character at the end."""
    for size in range(1, min(len(text), 3) + 1):
        lead = text[-size]
        if lead & 0xC0 != 0x80:  # not in the middle of a character
            needed = 1 + (lead >= 0xC0) + (lead >= 0xE0) + (lead >= 0xF0)
            return len(text) - size if needed > size else len(text)
    return len(text)
