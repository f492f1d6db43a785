"""How a model writes reasoning and calls: texts that stand around them.

In these texts `ID` stands for a call's id, and `INDEX` for its number within the answer.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

ID, INDEX = "\ue000", "\ue001"

SPECIAL = "\ud800"
"""Stands before the name of a special token: no text contains it, so a spelled name differs."""

TAG = re.compile(r"<[^<>\s]*>?|\[[A-Z_ /]+\]|\s*[^<\s]+")
"""The first piece of a text around calls."""


@dataclass(frozen=True)
class CallFormat:
    """`opening before NAME middle ARGUMENTS after separator before NAME ... after closing`.

    Two calls of Mistral are `[TOOL_CALLS][`, `{"name": "`, `area`, `", "arguments": `, `{"r": 1}`,
    `}`, and then `, `, `{"name": "`, `stop`, `", "arguments": `, `{}`, `}`, `]`: each part in the
    order above.

    separator: None if an answer has one call at most. gap: white space between the prompt and the
    first call. separators: of items, and of keys, in JSON. parameters: None if the arguments are
    one JSON object.
    """

    opening: str
    before: str
    middle: str
    after: str
    separator: str | None
    closing: str = ""
    gap: str = ""
    separators: tuple[str, str] = (", ", ": ")
    parameters: "ParameterFormat | None" = None

    @property
    def marker(self) -> str:
        """What begins calls within a text."""
        found = TAG.match(self.opening + self.before)
        return found[0] if found else ""

    @property
    def is_whole_answer(self) -> bool:
        """Whether calls are only at the beginning, since their marker is usual in texts."""
        return self.marker[:1] in "{[" and not self.marker.endswith("]")

    @property
    def is_enclosed(self) -> bool:
        """Whether something stands around all calls, so that their marker comes once."""
        return bool(self.closing.strip())


@dataclass(frozen=True)
class ParameterFormat:
    """`before KEY between VALUE after`: strings as they are, other values as JSON.

    between: of strings, and of other values. words: how true and false are written.
    """

    before: str
    between: tuple[str, str]
    after: str
    words: tuple[str, str] = ("true", "false")


@dataclass(frozen=True)
class ReasoningFormat:
    """`begin REASONING end`. gap: white space between the end and a call."""

    begin: str
    end: str
    gap: str = ""

    def is_open(self, prompt: str) -> bool | None:
        """Whether a rendered prompt has begun the reasoning; None if it has ended it too."""
        prompt = prompt.rstrip()
        return None if prompt.endswith(self.end) else prompt.endswith(self.begin)


@dataclass(frozen=True)
class AnswerFormat:
    """The format of a model's answers. reason: why tools cannot be used; empty if they can.

    special: ids of all special tokens, by name.
    """

    calls: CallFormat | None = None
    reasoning: ReasoningFormat | None = None
    reason: str = ""
    special: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def tokens(self) -> Mapping[str, int]:
        """The special tokens in its texts."""
        texts = f"{self.calls} {self.reasoning}"
        return {name: token for name, token in self.special.items() if name in texts}

    def split(self, text: str) -> list[str]:
        """The special tokens, `ID` and `INDEX` in a text, and what is between them."""
        names = map(re.escape, sorted([*self.tokens, ID, INDEX], reverse=True))
        return [piece for piece in re.split(f"({'|'.join(names)})", text) if piece]

    def marked(self, text: str) -> str:
        """A text with `SPECIAL` before its special tokens."""
        return "".join(SPECIAL * (piece in self.tokens) + piece for piece in self.split(text))

    def pattern(self, text: str) -> str:
        """A regular expression of a marked text."""
        escaped = re.escape(self.marked(text))
        return escaped.replace(ID, r"(?P<id>\w+)").replace(INDEX, r"\d+")


CALL_FORMATS = {
    "hermes": CallFormat(
        "", '<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>", "\n"
    ),
    "qwen3_coder": CallFormat(
        *("", "<tool_call>\n<function=", ">\n", "</function>\n</tool_call>", "\n"),
        parameters=ParameterFormat(
            "<parameter=", (">\n", ">\n"), "\n</parameter>\n", ("True", "False")
        ),
    ),
    "llama3_json": CallFormat("", '{"name": "', '", "parameters": ', "}", None),
    "mistral": CallFormat("[TOOL_CALLS][", '{"name": "', '", "arguments": ', "}", ", ", "]"),
}
"""Formats of calls by vLLM's names."""

REASONING_FORMATS = {
    **dict.fromkeys(CALL_FORMATS, ReasoningFormat("<think>", "</think>", "\n\n")),
    "mistral": ReasoningFormat("[THINK]", "[/THINK]"),
}
"""Formats of reasoning by the same names."""


TEXT_ONLY = AnswerFormat()
"""Of answers that are nothing but text."""
