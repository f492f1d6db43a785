"""Bodies and answers of /tokenize and /detokenize, in vLLM's shape."""

from typing import Annotated

from pydantic import Field

from ov_specdec.openai.body import Body
from ov_specdec.openai.errors import invalid
from ov_specdec.openai.fields import with_options
from ov_specdec.openai.messages import Messages, read_messages
from ov_specdec.openai.part import Part
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.text.prompt import Prompt

OF_PROMPTS = (
    *("add_special_tokens", "chat_template_kwargs"),
    *("add_generation_prompt", "continue_final_message"),
)
"""Options that change the ids of a prompt."""


@with_options(GenerationOptions, OF_PROMPTS)
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
