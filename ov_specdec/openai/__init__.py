"""OpenAI's interface as pure functions: from its requests to ours, and from results to answers.

No sockets here: the server and the batch command both build on it.
"""

from ov_specdec.openai.answers import Answer, make_body
from ov_specdec.openai.ask import Ask
from ov_specdec.openai.errors import ApiError, from_exception
from ov_specdec.openai.requests import read_chat, read_completion
from ov_specdec.openai.streaming import StreamedAnswer, encode_event

__all__ = [
    "Answer",
    "ApiError",
    "Ask",
    "StreamedAnswer",
    "encode_event",
    "from_exception",
    "make_body",
    "read_chat",
    "read_completion",
]
