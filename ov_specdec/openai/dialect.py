"""OpenAI's interface as a table."""

from ov_specdec.api.dialect import Dialect, Generating, Served, check_model
from ov_specdec.api.errors import Json
from ov_specdec.openai.audio import (
    MEDIA_TYPES,
    TranscriptionAnswer,
    TranscriptionForm,
    TranslationForm,
)
from ov_specdec.openai.completions import ChatAnswer, CompletionAnswer
from ov_specdec.openai.errors import error_body
from ov_specdec.openai.requests import ChatBody, CompletionBody, ResponsesBody
from ov_specdec.openai.responses import ResponseAnswer
from ov_specdec.openai.tokens import DetokenizeBody, TokenizeBody

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
