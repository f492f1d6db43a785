"""Backslash escapes in an argument, which a shell leaves as typed."""

import re

ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.|$)", re.DOTALL)
MEANINGS = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}


def unescape(text: str) -> str:
    r"""The text with \n, \t, \r, \\, \xNN and \uNNNN replaced by their characters.

    Raises `ValueError` for any other escape, for half of a surrogate pair, and for bytes that are
    not UTF-8.
    """
    replaced = ESCAPE.sub(_character, text)
    # Python writes characters beyond U+FFFF as one; \uNNNN has two halves for them.
    try:
        return replaced.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise ValueError("it is not valid text; give it as UTF-8") from error


def _character(match: re.Match[str]) -> str:
    escape = match[1]
    if len(escape) > 1:
        return chr(int(escape[1:], 16))
    if escape not in MEANINGS:
        raise ValueError(f"\\{escape} is not an escape; write \\\\ for a backslash")
    return MEANINGS[escape]
