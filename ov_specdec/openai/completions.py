"""Answers of /v1/chat/completions and /v1/completions, whole and as server-sent events."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import Field

from ov_specdec.openai.answer import (
    Answer,
    SpeculationMetrics,
    TokenCounts,
    Usage,
    count,
    make_metrics,
    make_usage,
    new_call_id,
)
from ov_specdec.openai.errors import DONE, ApiError, Maybe, Part, encode_event
from ov_specdec.results.chunks import Chunk, GenerationResult, Origin
from ov_specdec.results.parts import Arguments, CallBegin, CallEnd, Reasoning, Text, ToolCall
from ov_specdec.sampling.logits import TokenLogprobs, finite
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


FinishReason = Literal["stop", "length", "tool_calls"]
"""Of an answer; a cancelled one is an error."""


class ChatFunction(Part):
    """The function of a call. arguments: the text of a JSON object, or a piece of it."""

    name: Maybe[str] = None
    arguments: str


class ChatCall(Part):
    """The call of a tool, or what is new of it. index: in a stream, the number of the call."""

    index: Maybe[int] = None
    id: Maybe[str] = None
    type: Maybe[Literal["function"]] = None
    function: ChatFunction


class ChatMessage(Part):
    """The message of the model. content: null if it only calls tools."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    reasoning_content: Maybe[str] = None
    tool_calls: Maybe[list[ChatCall]] = None


def make_call(call: ToolCall, index: int | None = None) -> ChatCall:
    """A call, or with an index its beginning in a stream."""
    function = ChatFunction(name=call.name, arguments=call.arguments)
    return ChatCall(index=index, id=call.id or new_call_id(), type="function", function=function)


class ChatChoice(Part):
    """One of the answers to a conversation."""

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason


class CompletionChoice(Part):
    """One of the continuations."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason


class AnswerBody(Part):
    """Common fields of whole answers and of events."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: None = None
    choices: list[Any]
    usage: Usage | TokenCounts | None
    metrics: Maybe[SpeculationMetrics] = None


class ChatCompletion(AnswerBody):
    """An answer of /v1/chat/completions."""

    object: Literal["chat.completion"] = "chat.completion"
    choices: list[ChatChoice]
    usage: Usage


class Completion(AnswerBody):
    """An answer of /v1/completions."""

    object: Literal["text_completion"] = "text_completion"
    choices: list[CompletionChoice]
    usage: Usage


class Delta(Part):
    """What is new of a message; the first one has its role."""

    role: Maybe[Literal["assistant"]] = None
    content: Maybe[str] = None
    reasoning_content: Maybe[str] = None
    tool_calls: Maybe[list[ChatCall]] = None


class Piece(Part):
    """A piece of a choice. finish_reason: on its last one."""

    index: int
    finish_reason: FinishReason | None = None
    origin: Maybe[Origin] = None


class ChatPiece(Piece):
    """A piece of an answer to a conversation."""

    delta: Delta
    logprobs: ChatLogprobs | None = None


class CompletionPiece(Piece):
    """A piece of a continuation."""

    text: str
    logprobs: CompletionLogprobs | None = None


class Event(AnswerBody):
    """An event.

    usage: with `include_usage` only: null, except in the last event or if requested for all.
    """

    # `exclude_if` makes the schema say that it may be missing.
    usage: Usage | TokenCounts | None = Field(None, exclude_if=lambda _: False)


class ChatChunk(Event):
    """An event of /v1/chat/completions."""

    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    choices: list[ChatPiece]


class CompletionChunk(Event):
    """An event of /v1/completions."""

    object: Literal["text_completion"] = "text_completion"
    choices: list[CompletionPiece]


class StreamedCompletion:
    """Turns the chunks of the choices of one answer into events."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._is_chat = answer.ask.endpoint == "chat"
        self._scores = [CompletionScores(answer, i) for i in range(answer.ask.num_choices)]
        self._num_calls = [0] * answer.ask.num_choices

    def begin(self) -> list[bytes]:
        """The events before any text: the role of a message, and the prompt with `echo`."""
        answer, events = self._answer, []
        for index in range(answer.ask.num_choices):
            if self._is_chat:
                delta = Delta(role="assistant", content="")
                events.append(self._event(ChatPiece(index=index, delta=delta)))
            elif answer.ask.echo and answer.ask.options.prompt_logprobs is None:
                events.append(
                    self._event(CompletionPiece(index=index, text=answer.prompt_text(index)))
                )
        return events

    def note(self, index: int, chunk: Chunk) -> None:
        """Note a chunk of the choice with this index."""
        self._answer.choices[index].add(chunk)

    def add(self, index: int, chunk: Chunk) -> list[bytes]:
        """The events of a chunk of the choice with this index."""
        self.note(index, chunk)
        answer, ending = self._answer, chunk.finish_reason
        scores: ChatLogprobs | CompletionLogprobs | None
        if self._is_chat:
            scores = chat_logprobs(answer, chunk.logprobs) if chunk.logprobs else None
            new: list[Any] = [{"delta": delta} for delta in self._deltas(index, chunk)]
            nothing: dict[str, Any] = {"delta": Delta()}
        else:
            scores = self._scores[index].add(chunk)
            text = (answer.prompt_text(index) if chunk.prompt_logprobs else "") + chunk.text
            new, nothing = [{"text": text}] * bool(text), {"text": ""}
        if scores is not None or ending is not None:
            *new, last = new or [nothing]
            new.append({**last, "logprobs": scores, "finish_reason": ending})
        usage, origin = None, chunk.origin if answer.ask.origins else None
        if answer.ask.usage_in_events:
            usage = count(chunk.num_prompt_tokens, len(answer.choices[index].token_ids))
        kind = ChatPiece if self._is_chat else CompletionPiece
        return [self._event(kind(index=index, origin=origin, **own), usage) for own in new]

    def _deltas(self, index: int, chunk: Chunk) -> Iterator[Delta]:
        """What a chunk adds to the message of a choice. A call begins without arguments."""
        for part in chunk.joined_parts:
            number = self._num_calls[index]
            match part:
                case Text(text):
                    yield Delta(content=text)
                case Reasoning(text):
                    yield Delta(reasoning_content=text)
                case CallBegin(name, call_id):
                    yield Delta(tool_calls=[make_call(ToolCall(name, "", call_id), number)])
                case Arguments(text):
                    more = ChatCall(index=number, function=ChatFunction(arguments=text))
                    yield Delta(tool_calls=[more])
                case CallEnd():
                    self._num_calls[index] += 1

    def end(self) -> list[bytes]:
        """The events after the last chunk."""
        if not self._answer.ask.include_usage:
            return [DONE]
        stats = self._answer.stats
        return [self._event(None, make_usage(self._answer.ask, stats), make_metrics(stats)), DONE]

    def fail(self, error: ApiError) -> bytes:
        """The event that ends a failed stream, without [DONE]."""
        return encode_event(error.body())

    def whole(self) -> ChatCompletion | Completion:
        """The body of an answer that is not streamed."""
        answer = self._answer
        choices: list[Any] = []
        for index, result in enumerate(choice.result for choice in answer.choices):
            common: dict[str, Any] = {"index": index, "finish_reason": result.finish_reason}
            if self._is_chat:
                scored = chat_logprobs(answer, result.logprobs)
                calls = [make_call(call) for call in result.tool_calls] or None
                message = ChatMessage(
                    content=result.text or (None if calls else ""),
                    reasoning_content=result.reasoning or None,
                    tool_calls=calls,
                )
                choices.append(ChatChoice(message=message, logprobs=scored, **common))
            else:
                scores = self._scores[index].add(result)
                text = answer.prompt_text(index) + result.text
                choices.append(CompletionChoice(text=text, logprobs=scores, **common))
        usage, metrics = make_usage(answer.ask, answer.stats), make_metrics(answer.stats)
        kind = ChatCompletion if self._is_chat else Completion
        return kind(**self._head, choices=choices, usage=usage, metrics=metrics)

    @property
    def _head(self) -> dict[str, Any]:
        """The common fields of every body."""
        answer = self._answer
        return {"id": answer.id, "created": answer.created, "model": answer.model}

    def _event(
        self,
        piece: Piece | None,
        usage: TokenCounts | None = None,
        metrics: SpeculationMetrics | None = None,
    ) -> bytes:
        kind = ChatChunk if self._is_chat else CompletionChunk
        choices: list[Any] = [] if piece is None else [piece]
        event = kind(**self._head, choices=choices, usage=usage, metrics=metrics)
        return encode_event(event, without=() if self._answer.ask.include_usage else ("usage",))
