"""OpenAI's interface as a table, with what vLLM adds to it: /tokenize and /detokenize."""

from typing import Annotated

from pydantic import Field

from ov_specdec.api.body import with_options
from ov_specdec.api.dialect import Dialect, Generating, Query, Served, check_model
from ov_specdec.api.errors import Json, invalid
from ov_specdec.api.messages import Messages, read_messages
from ov_specdec.openai.audio import (
    MEDIA_TYPES,
    TranscriptionAnswer,
    TranscriptionForm,
    TranslationForm,
)
from ov_specdec.openai.completions import ChatAnswer, CompletionAnswer, error_body
from ov_specdec.openai.requests import ChatBody, CompletionBody, ResponsesBody
from ov_specdec.openai.responses import ResponseAnswer
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.text.detokenizer import as_text
from ov_specdec.text.prompt import Prompt

TEXTS = [each.partition(";")[0] for each in MEDIA_TYPES.values()]


def models(served: Served) -> Json:
    """The model that is served."""
    return {"object": "list", "data": [model(served, name) for name in served.names]}


def model(served: Served, model: str) -> Json:
    """The model, if it has this name."""
    check_model(model, served.names)
    return {
        "id": model,
        "object": "model",
        "created": served.started,
        "owned_by": "ov-specdec",
        "max_model_len": served.max_length,
        "chat_template": served.tokenizer.chat_template is not None,
        "batch_invariant": served.batch_invariant.as_dict(),
    }


@with_options(
    GenerationOptions,
    (
        *("add_special_tokens", "chat_template_kwargs"),
        *("add_generation_prompt", "continue_final_message"),
    ),
)
class TokenizeBody(Query):
    """A prompt, or messages in the chat template, to encode."""

    prompt: str | None = None
    messages: Messages | None = None
    return_token_strs: bool | None = None

    def answer(self, served: Served) -> Json:
        """The ids of the prompt."""
        if (self.prompt is None) == (self.messages is None):
            raise invalid("prompt", "give either a prompt or messages")
        options = GenerationOptions(**self.given_options, apply_chat_template=self.prompt is None)
        messages = [message.for_template() for message in self.messages or ()]
        prompt: Prompt = read_messages(messages) if self.prompt is None else self.prompt
        ids = served.encode(prompt, options)
        pieces = map(as_text, map(served.tokenizer.piece, ids))
        return {
            "count": len(ids),
            "max_model_len": served.max_length,
            "tokens": ids,
            "token_strs": [*pieces] if self.return_token_strs else None,
        }


class DetokenizeBody(Query):
    """Token ids to decode."""

    tokens: Annotated[list[int], Field(fail_fast=True)]

    def answer(self, served: Served) -> Json:
        """The text of ids."""
        known = range(served.tokenizer.vocab_size)
        if unknown := [token for token in self.tokens if token not in known]:
            raise invalid("tokens", f"tokens holds {unknown[0]}, which the model does not have")
        return {"prompt": served.tokenizer.decode_all(self.tokens)}


OPENAI = Dialect(
    error=error_body,
    prefix="",
    posts={
        "/v1/chat/completions": Generating(ChatBody, ChatAnswer),
        "/v1/completions": Generating(CompletionBody, CompletionAnswer),
        "/v1/responses": Generating(ResponsesBody, ResponseAnswer),
        "/v1/audio/transcriptions": Generating(TranscriptionForm, TranscriptionAnswer, TEXTS),
        "/v1/audio/translations": Generating(TranslationForm, TranscriptionAnswer, TEXTS),
        "/tokenize": TokenizeBody,
        "/detokenize": DetokenizeBody,
    },
    pages={"/v1/models": models, "/v1/models/{model:path}": model},
)
