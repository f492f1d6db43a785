"""Bodies and answers of /tokenize and /detokenize, in vLLM's shape."""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from ov_specdec.description import describe
from ov_specdec.openai.body import Body
from ov_specdec.openai.errors import invalid, show
from ov_specdec.openai.fields import with_options
from ov_specdec.openai.messages import Messages, read_messages
from ov_specdec.openai.part import Part
from ov_specdec.options import GenerationOptions
from ov_specdec.text.prompt import Prompt

TEMPLATE = ("chat_template_kwargs", "add_generation_prompt", "continue_final_message")
"""Options that change the text of a rendered conversation."""


@dataclass(frozen=True)
class Tokenize:
    """A prompt to tokenize. options: of its template. texts: whether to return token texts too."""

    model: str | None
    prompt: Prompt
    options: dict[str, Any]
    texts: bool


@with_options([describe(GenerationOptions)[name] for name in TEMPLATE])
class TokenizeBody(Body):
    """Body of /tokenize: a prompt or messages."""

    model: str | None = None
    prompt: str | None = None
    messages: Messages | None = None
    return_token_strs: bool | None = None
    add_special_tokens: bool | None = None

    def wanted(self) -> Tokenize:
        """The parsed request."""
        is_prompt = self.prompt is not None
        if is_prompt == (self.messages is not None):
            raise invalid("prompt", "give either a prompt or messages")
        if self.add_special_tokens not in (None, is_prompt):
            raise invalid(
                "add_special_tokens",
                f"add_special_tokens={show(self.add_special_tokens)} is not supported: only "
                f"{show(is_prompt)} is taken with {'a prompt' if is_prompt else 'messages'}",
                "unsupported_value",
            )
        if self.prompt is not None:
            options: dict[str, Any] = {"apply_chat_template": False}
            return Tokenize(self.model, self.prompt, options, bool(self.return_token_strs))
        messages = read_messages(self.messages or [])
        return Tokenize(self.model, messages, self.options, bool(self.return_token_strs))


class DetokenizeBody(Body):
    """Body of /detokenize."""

    model: str | None = None
    tokens: Annotated[list[int], Field(fail_fast=True)]


class Tokens(Part):
    """Answer of /tokenize."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class Text(Part):
    """Answer of /detokenize."""

    prompt: str
