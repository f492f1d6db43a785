"""Anthropic's interface as a table."""

from ov_specdec.anthropic.answer import MessagesAnswer, error_body
from ov_specdec.anthropic.requests import CountBody, MessagesBody
from ov_specdec.api.answer import encode_event
from ov_specdec.api.dialect import Dialect, Framing, Generating

ANTHROPIC = Dialect(
    error=error_body,
    prefix="/v1/messages",
    posts={
        "/v1/messages": Generating(MessagesBody, MessagesAnswer),
        "/v1/messages/count_tokens": CountBody,
    },
    stream=Framing(ping=encode_event({"type": "ping"}, "ping")),
    key_headers=("x-api-key",),
)
