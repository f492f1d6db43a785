"""OpenAI's interface as pure functions: parse its requests, and make its answers from results.

No sockets here: the server and the batch command both build on it.
"""

from ov_specdec.openai.answer import Answer
from ov_specdec.openai.ask import Ask
from ov_specdec.openai.errors import ApiError, from_exception
from ov_specdec.openai.part import Part
from ov_specdec.openai.requests import ChatBody, CompletionBody, ResponsesBody, read_ask
from ov_specdec.openai.responses import StreamedResponse
from ov_specdec.openai.streaming import StreamedCompletion

__all__ = [
    "Answer",
    "ApiError",
    "Ask",
    "ChatBody",
    "CompletionBody",
    "ResponsesBody",
    "from_exception",
    "make_body",
    "make_stream",
    "read_ask",
]


def make_body(answer: Answer) -> Part:
    """The body of an answer that is not streamed, once its choices have ended."""
    return make_stream(answer).whole()


def make_stream(answer: Answer) -> StreamedCompletion | StreamedResponse:
    """An object that turns the chunks of an answer into events."""
    if answer.ask.endpoint == "responses":
        return StreamedResponse(answer)
    return StreamedCompletion(answer)
