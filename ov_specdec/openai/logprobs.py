"""Log-probabilities of an answer, in the shapes of /v1/chat/completions and /v1/completions."""

from codecs import getincrementaldecoder
from collections.abc import Sequence

from ov_specdec.logprobs import TokenLogprobs, finite
from ov_specdec.openai.answer import Answer
from ov_specdec.openai.part import Part
from ov_specdec.text.token_bytes import as_text


class TokenLogprob(Part):
    """A token, its bytes, and its log-probability."""

    token: str
    logprob: float
    bytes: list[int]


class ChatToken(TokenLogprob):
    """A token of the text, and the most likely ones at its place."""

    top_logprobs: list[TokenLogprob]


class ChatLogprobs(Part):
    """Log-probabilities of a chat."""

    content: list[ChatToken]
    refusal: None = None


class CompletionLogprobs(Part):
    """Log-probabilities of a completion, token by token; the first of a prompt has none."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class TextOffsets:
    """Offsets of tokens in a text, in characters. Tokens of one character share its offset."""

    def __init__(self) -> None:
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._length = 0

    def of(self, piece: bytes) -> int:
        """The offset of the next token."""
        offset = self._length
        self._length += len(self._decoder.decode(piece))
        return offset


def chat_logprobs(answer: Answer, tokens: Sequence[TokenLogprobs]) -> ChatLogprobs | None:
    """Log-probabilities of a chat; None if not requested."""
    if answer.ask.logprobs is None:
        return None
    return ChatLogprobs(content=[_chat_token(answer, token) for token in tokens])


def completion_logprobs(
    answer: Answer, tokens: Sequence[TokenLogprobs], offsets: TextOffsets
) -> CompletionLogprobs | None:
    """Log-probabilities of a completion; None if not requested.

    offsets: of the tokens before these.
    """
    if answer.ask.logprobs is None:
        return None
    pieces = [answer.piece(token.token_id) for token in tokens]
    return CompletionLogprobs(
        tokens=[as_text(piece) for piece in pieces],
        token_logprobs=[None if t.logprob is None else finite(t.logprob) for t in tokens],
        top_logprobs=[_top_by_text(answer, token) for token in tokens],
        text_offset=[offsets.of(piece) for piece in pieces],
    )


def _chat_token(answer: Answer, token: TokenLogprobs) -> ChatToken:
    own = _token(answer, token.token_id, token.logprob or 0.0)
    return ChatToken(**vars(own), top_logprobs=[_token(answer, *each) for each in token.top])


def _token(answer: Answer, token_id: int, logprob: float) -> TokenLogprob:
    piece = answer.piece(token_id)
    return TokenLogprob(token=as_text(piece), logprob=finite(logprob), bytes=list(piece))


def _top_by_text(answer: Answer, token: TokenLogprobs) -> dict[str, float] | None:
    """The most likely tokens at a position, and the chosen one; the first of equal texts."""
    if token.logprob is None:
        return None
    found: dict[str, float] = {}
    for token_id, logprob in (*token.top, (token.token_id, token.logprob)):
        found.setdefault(as_text(answer.piece(token_id)), finite(logprob))
    return found
