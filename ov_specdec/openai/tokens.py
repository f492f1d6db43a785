"""Bodies of /tokenize and /detokenize, in vLLM's shape."""

from dataclasses import dataclass
from typing import Any

from ov_specdec.errors import shorten
from ov_specdec.openai.errors import invalid
from ov_specdec.openai.fields import Fields
from ov_specdec.openai.requests import read_messages, read_template_options
from ov_specdec.text.prompt import Prompt


@dataclass(frozen=True)
class Tokenize:
    """A prompt whose ids are wanted. options: what its template reads. texts: of each id too."""

    model: str | None
    prompt: Prompt
    options: dict[str, Any]
    texts: bool


@dataclass(frozen=True)
class Detokenize:
    """Token ids whose text is wanted."""

    model: str | None
    tokens: list[int]


def read_tokenize(body: object) -> Tokenize:
    """The body of /tokenize; `ApiError` for what cannot be honoured."""
    fields = Fields(body)
    prompt, messages = fields.text("prompt"), fields.get("messages")
    if (prompt is None) == (messages is None):
        raise invalid("prompt", "give either a prompt or messages")
    read: Prompt = read_messages(messages) if prompt is None else prompt
    options = read_template_options(fields) if prompt is None else {"apply_chat_template": False}
    asked = Tokenize(fields.text("model"), read, options, fields.flag("return_token_strs"))
    fields.neutral(add_special_tokens=(prompt is not None,))
    fields.finish()
    return asked


def read_detokenize(body: object) -> Detokenize:
    """The body of /detokenize; `ApiError` for what cannot be honoured."""
    fields = Fields(body)
    tokens = fields.get("tokens")
    if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
        raise invalid("tokens", f"tokens={shorten(tokens)} must be a list of token ids")
    asked = Detokenize(fields.text("model"), tokens)
    fields.finish()
    return asked
