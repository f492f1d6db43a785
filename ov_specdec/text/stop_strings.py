"""Find a stop string in a text that arrives in pieces."""


class StopString:
    """Finds one string in a text as it grows, in time linear in the length of the text.

    Source: Knuth, Morris and Pratt, Fast pattern matching in strings (1977).
    """

    def __init__(self, stop: str) -> None:
        self.text = stop
        self._borders = _borders(stop)
        self.num_matched = 0
        """Length of the longest suffix of the text that is a prefix of the string."""

    def find(self, new: str) -> int | None:
        """Search more text. Returns where the string begins in it, below 0 if in earlier text.

        None if it is not there. Do not call again once it was found.
        """
        stop, matched = self.text, self.num_matched
        for position, character in enumerate(new):
            while matched and stop[matched] != character:
                matched = self._borders[matched - 1]
            matched += stop[matched] == character
            if matched == len(stop):
                return position + 1 - matched
        self.num_matched = matched
        return None


def _borders(text: str) -> list[int]:
    """For each prefix of a text, the length of its longest proper border."""
    borders, matched = [0], 0
    for character in text[1:]:
        while matched and text[matched] != character:
            matched = borders[matched - 1]
        matched += text[matched] == character
        borders.append(matched)
    return borders
