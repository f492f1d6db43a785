"""A growing sequence of one tokenizer's ids, as ids of another."""

from collections.abc import Mapping, Sequence

from ov_specdec.text.pieces import PieceTokenizer

WINDOW = 4
"""Ids at the end that are encoded anew with what follows them, and those before up to a space: as
parts of one word they may become others."""
MAX_WINDOW = 16
"""The same where there is no space, as in Chinese."""


class Translation:
    """The text of a main model's ids in the ids of its draft model.

    Text is encoded as the draft's tokenizer would encode it, a window at the end anew whenever it
    grows, so that all before it stays the same, and with it the draft's KV cache. Special tokens
    come through where the draft has one of the same role, and are left out otherwise.

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
        self.num_settled = len(self.ids)
        """So many of them, from the first, will not change."""
        self.rest = b""
        """Bytes at the end of the text that no id stands for yet: part of a character."""
        self._num_read = 0

    def read(self, tokens: Sequence[int]) -> None:
        """Go on to these main ids, which begin with those of the last call."""
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
            window = self._draft.decode(self.ids[self.num_settled :])
            self.ids[self.num_settled :] = self._draft.encode(window + text)
            self.num_settled = self._window_start()

    def _append_special(self, token: int) -> None:
        self.ids += self._draft.encode(self.rest)
        self.rest = b""
        if token in self._special:
            self.ids.append(self._special[token])
        self.num_settled = len(self.ids)

    def _window_start(self) -> int:
        """All before the window is settled, the first id in any case."""
        end = len(self.ids)
        first = max(end - MAX_WINDOW, self.num_settled, min(end, 1))
        for start in range(end - WINDOW, first, -1):
            if self._draft.bytes_of[self.ids[start]][:1].isspace():
                return start
        return first


def whole_characters(text: bytes) -> int:
    """How many of some bytes come before a character of UTF-8 that they leave unfinished."""
    for size in range(1, min(len(text), 3) + 1):
        lead = text[-size]
        if lead & 0xC0 != 0x80:  # not in the middle of a character
            needed = 1 + (lead >= 0xC0) + (lead >= 0xE0) + (lead >= 0xF0)
            return len(text) - size if needed > size else len(text)
    return len(text)
