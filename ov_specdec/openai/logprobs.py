"""Log-probabilities of an answer, in the shapes of /v1/chat/completions and /v1/completions."""

from bisect import bisect_right
from collections.abc import Sequence

from ov_specdec.openai.answer import Answer
from ov_specdec.openai.part import Part
from ov_specdec.results.chunks import Chunk, GenerationResult
from ov_specdec.results.logprobs import TokenLogprobs, finite
from ov_specdec.text.detokenizer import as_text


class TokenLogprob(Part):
    """A token, its bytes, and its log-probability."""

    token: str
    logprob: float
    bytes: list[int]


class ChatToken(TokenLogprob):
    """A token of the text, and the most likely ones at its position."""

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


class CompletionScores:
    """The log-probabilities of one completion, each once the text before its token is sent.

    Until then a stop string may end the text before it.
    """

    def __init__(self, answer: Answer, index: int) -> None:
        self._answer, self._index = answer, index
        self._num_before = self._num_sent = len(answer.prompt_text(index))
        self._tokens: list[TokenLogprobs] = []
        self._offsets: list[int] = []

    def add(self, new: Chunk | GenerationResult) -> CompletionLogprobs | None:
        """The next ones; None if there are none. new: what is sent together with them."""
        if self._answer.ask.options.logprobs is None:
            return None
        if new.prompt_logprobs:
            self._offsets += self._answer.prompt_offsets(self._index)
        self._offsets += [self._num_before + token.offset for token in new.logprobs]
        self._tokens += [*new.prompt_logprobs, *new.logprobs]
        self._num_sent += len(new.text)
        has_ended = new.finish_reason is not None
        count = len(self._tokens) if has_ended else bisect_right(self._offsets, self._num_sent)
        tokens, self._tokens = self._tokens[:count], self._tokens[count:]
        offsets, self._offsets = self._offsets[:count], self._offsets[count:]
        if not tokens:
            return None
        return CompletionLogprobs(
            tokens=[_name(self._answer, token.token_id) for token in tokens],
            token_logprobs=[None if t.logprob is None else finite(t.logprob) for t in tokens],
            top_logprobs=[_top_by_name(self._answer, token) for token in tokens],
            text_offset=[min(offset, self._num_sent) for offset in offsets],
        )


def chat_logprobs(answer: Answer, tokens: Sequence[TokenLogprobs]) -> ChatLogprobs | None:
    """Log-probabilities of a chat; None if not requested."""
    if answer.ask.options.logprobs is None:
        return None
    content = [
        ChatToken(
            **vars(_token(answer, token.token_id, token.logprob or 0.0)),
            top_logprobs=[_token(answer, *each) for each in token.top],
        )
        for token in tokens
    ]
    return ChatLogprobs(content=content)


def _token(answer: Answer, token_id: int, logprob: float) -> TokenLogprob:
    piece = answer.tokenizer.piece(token_id)
    return TokenLogprob(token=as_text(piece), logprob=finite(logprob), bytes=list(piece))


def _name(answer: Answer, token_id: int) -> str:
    """The text of a token, which for a part of a character begins with "bytes:", as OpenAI's."""
    piece = answer.tokenizer.piece(token_id)
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return f"bytes:{as_text(piece)}"


def _top_by_name(answer: Answer, token: TokenLogprobs) -> dict[str, float] | None:
    """The most likely tokens at a position, and the chosen one.

    Of several with the same text, the chosen one or else the most likely has the text as its name,
    and others their id, as in vLLM.
    """
    if token.logprob is None:
        return None
    own = _name(answer, token.token_id)
    found: dict[str, float] = {}
    for token_id, logprob in dict((*token.top, (token.token_id, token.logprob))).items():
        name = _name(answer, token_id)
        if token_id != token.token_id and (name == own or name in found):
            name = f"token_id:{token_id}"
        found[name] = finite(logprob)
    return found
