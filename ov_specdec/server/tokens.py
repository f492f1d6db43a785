"""/tokenize and /detokenize, in vLLM's shape."""

from typing import Annotated

from pydantic import Field

from ov_specdec.errors import ContextLengthError
from ov_specdec.openai.body import Body, with_options
from ov_specdec.openai.errors import Json, invalid
from ov_specdec.openai.messages import Messages, read_messages
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.server.engine import EngineClient
from ov_specdec.text.detokenizer import as_text
from ov_specdec.text.generated_tokens import GeneratedTokens
from ov_specdec.text.prompt import Prompt, encode_prompt


@with_options(
    GenerationOptions,
    (
        *("add_special_tokens", "chat_template_kwargs"),
        *("add_generation_prompt", "continue_final_message"),
    ),
)
class TokenizeBody(Body):
    """A prompt, or messages in the chat template, to encode."""

    model: str | None = None
    prompt: str | None = None
    messages: Messages | None = None
    return_token_strs: bool | None = None

    def answer(self, engine: EngineClient, most: int) -> Json:
        """The ids of the prompt. most: maximum tokens of a request."""
        if (self.prompt is None) == (self.messages is None):
            raise invalid("prompt", "give either a prompt or messages")
        options = GenerationOptions(**self.given_options, apply_chat_template=self.prompt is None)
        given = (message.given() for message in self.messages or ())
        prompt: Prompt = read_messages(given) if self.prompt is None else self.prompt
        most = max(engine.max_length, most)
        try:
            ids = encode_prompt(prompt, options, engine.tokenizer, GeneratedTokens(), most)
        except ContextLengthError as error:
            message = f"the prompt has more than max_request_tokens={most} tokens: send less"
            raise invalid(None, message, "too_many_tokens") from error
        pieces = map(as_text, map(engine.tokenizer.piece, ids))
        return {
            "count": len(ids),
            "max_model_len": engine.max_length,
            "tokens": ids,
            "token_strs": [*pieces] if self.return_token_strs else None,
        }


class DetokenizeBody(Body):
    """Token ids to decode."""

    model: str | None = None
    tokens: Annotated[list[int], Field(fail_fast=True)]

    def answer(self, engine: EngineClient, _: int) -> Json:
        """The text of ids."""
        known = range(engine.tokenizer.vocab_size)
        if unknown := [token for token in self.tokens if token not in known]:
            raise invalid("tokens", f"tokens holds {unknown[0]}, which the model does not have")
        return {"prompt": engine.tokenizer.decode_all(self.tokens)}
