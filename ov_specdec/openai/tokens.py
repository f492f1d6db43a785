"""Requests and answers of /tokenize and /detokenize."""

from typing import Annotated

from pydantic import Field

from ov_specdec.openai.body import Body, with_options
from ov_specdec.openai.errors import Part, invalid
from ov_specdec.openai.messages import Messages, read_messages
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.text.prompt import Prompt


@with_options(
    GenerationOptions,
    (
        *("add_special_tokens", "chat_template_kwargs"),
        *("add_generation_prompt", "continue_final_message"),
    ),
)
class TokenizeBody(Body):
    """Body of /tokenize: a prompt or messages."""

    model: str | None = None
    prompt: str | None = None
    messages: Messages | None = None
    return_token_strs: bool | None = None

    def read(self) -> tuple[Prompt, GenerationOptions]:
        """The prompt, and its options."""
        if self.prompt is not None and self.messages is None:
            return self.prompt, GenerationOptions(**self.options, apply_chat_template=False)
        if self.messages is None or self.prompt is not None:
            raise invalid("prompt", "give either a prompt or messages")
        return read_messages(self.messages), GenerationOptions(**self.options)


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
