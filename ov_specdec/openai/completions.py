"""Answers of /v1/chat/completions and /v1/completions, whole and as server-sent events."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import ClassVar, TypeVar

from ov_specdec.api.answer import Answer, encode_event, make_metrics, new_call_id
from ov_specdec.api.errors import ApiError, Json
from ov_specdec.openai.requests import ChatBody, ChoicesBody, CompletionBody, StreamOptions
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.results.chunks import Chunk, GenerationResult
from ov_specdec.results.parts import Arguments, CallBegin, CallEnd, Reasoning, Text, ToolCall
from ov_specdec.sampling.logits import TokenLogprobs, finite
from ov_specdec.text.detokenizer import CharacterStream, as_text
from ov_specdec.text.prompt import Prompt
from ov_specdec.text.tokenizer import Tokenizer

DONE = b"data: [DONE]\n\n"

C = TypeVar("C", bound=ChoicesBody)


def error_body(error: ApiError) -> Json:
    """The body of an answer that is an error."""
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    if error.status == 429:
        kind = "rate_limit_error"
    told = {"message": error.message, "type": kind, "param": error.param, "code": error.code}
    return {"error": told}


class ChoicesAnswer(Answer[C]):
    """What answers of both endpoints share. object, piece: names of a whole one and an event."""

    object: ClassVar[str]
    piece: ClassVar[str]
    empty: ClassVar[Json]
    """A piece without text."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._streaming = self.request.stream_options or StreamOptions()

    def add(self, index: int, chunk: Chunk) -> list[bytes]:
        """Note a chunk; its events."""
        self.note(index, chunk)
        new, scores = self._read(index, chunk)
        if scores is not None or chunk.finish_reason is not None:
            *new, last = new or [self.empty]
            new.append({**last, "logprobs": scores, "finish_reason": chunk.finish_reason})
        usage, origin = None, {"origin": chunk.origin} if self.request.return_origins else {}
        if self._streaming.continuous_usage_stats:
            usage = _count(chunk.num_prompt_tokens, len(self.choices[index].token_ids))
        return [self._event([_piece(index, {**origin, **each})], usage) for each in new]

    def end(self) -> list[bytes]:
        """The events after the last chunk."""
        if not self._streaming.include_usage:
            return [DONE]
        return [self._event([], self._usage(), **make_metrics(self.stats)), DONE]

    def fail(self, error: ApiError) -> bytes:
        """The event that ends a failed stream."""
        return encode_event(error_body(error))

    def whole(self) -> Json:
        """The body of an answer that is not streamed."""
        choices = [
            {"index": index, **self._whole(index, done), "finish_reason": done.finish_reason}
            for index, done in enumerate(choice.result for choice in self.choices)
        ]
        body = self._body(self.object, choices)
        return {**body, "usage": self._usage(), **make_metrics(self.stats)}

    def _read(self, index: int, chunk: Chunk) -> tuple[list[Json], Json | None]:
        """What a chunk adds to a choice, and the log-probabilities that come with it."""
        raise NotImplementedError

    def _whole(self, index: int, result: GenerationResult) -> Json:
        """A whole choice."""
        raise NotImplementedError

    def _usage(self) -> Json:
        """Counts of tokens; the choices of one prompt count it once."""
        stats = self.stats
        first = stats[:: self.request.choices_per_prompt]
        prompt_tokens = sum(each.prompt_tokens for each in first)
        usage = _count(prompt_tokens, sum(each.generated_tokens for each in stats))
        cached = sum(each.cached_tokens for each in first)
        return {**usage, "prompt_tokens_details": {"cached_tokens": cached}}

    def _event(self, pieces: list[Json], usage: Json | None = None, **metrics: Json) -> bytes:
        body = self._body(self.piece, pieces)
        if self._streaming.include_usage:
            body |= {"usage": usage, **metrics}
        return encode_event(body)

    def _body(self, kind: str, choices: list[Json]) -> Json:
        """The common fields of whole answers and of events."""
        head = {"id": self.id, "object": kind, "created": self.created, "model": self.model}
        return {**head, "system_fingerprint": None, "choices": choices}


class ChatAnswer(ChoicesAnswer[ChatBody]):
    """Messages that answer a conversation."""

    prefix, object, piece = "chatcmpl-", "chat.completion", "chat.completion.chunk"
    empty: ClassVar[Json] = {"delta": {}}

    def __post_init__(self) -> None:
        super().__post_init__()
        self._num_calls = [0] * self.request.num_choices

    def begin(self) -> list[bytes]:
        """The events before any text: the role of a message."""
        first: Json = {"delta": {"role": "assistant", "content": ""}}
        return [self._event([_piece(index, first)]) for index in range(len(self.choices))]

    def _read(self, index: int, chunk: Chunk) -> tuple[list[Json], Json | None]:
        scores = chat_logprobs(self.tokenizer, chunk.logprobs) if chunk.logprobs else None
        return [{"delta": delta} for delta in self._deltas(index, chunk)], scores

    def _whole(self, index: int, result: GenerationResult) -> Json:  # noqa: ARG002
        """Its content is null if it only calls tools."""
        calls = [_call(call) for call in result.tool_calls]
        message: Json = {"role": "assistant", "content": result.text, "refusal": None}
        if result.reasoning:
            message["reasoning_content"] = result.reasoning
        if calls:
            message |= {"content": result.text or None, "tool_calls": calls}
        is_scored = self.request.options.logprobs is not None
        scores = chat_logprobs(self.tokenizer, result.logprobs) if is_scored else None
        return {"message": message, "logprobs": scores}

    def _deltas(self, index: int, chunk: Chunk) -> Iterator[Json]:
        """What a chunk adds to the message of a choice. A call begins without arguments."""
        for part in chunk.joined_parts:
            number = self._num_calls[index]
            match part:
                case Text(text):
                    yield {"content": text}
                case Reasoning(text):
                    yield {"reasoning_content": text}
                case CallBegin(name, call_id):
                    begun = _call(ToolCall(name, "", call_id))
                    yield {"tool_calls": [{"index": number, **begun}]}
                case Arguments(text):
                    yield {"tool_calls": [{"index": number, "function": {"arguments": text}}]}
                case CallEnd():
                    self._num_calls[index] += 1

    def _usage(self) -> Json:
        """With a prediction, also of draft tokens from matches in it, or in the text so far."""
        usage = super()._usage()
        if self.request.prediction:
            rounds = [r for each in self.stats for r in each.rounds if r.source == "suffix"]
            accepted = sum(r.num_accepted for r in rounds)
            usage["completion_tokens_details"] = {
                "accepted_prediction_tokens": accepted,
                "rejected_prediction_tokens": sum(r.num_drafted for r in rounds) - accepted,
            }
        return usage


class CompletionAnswer(ChoicesAnswer[CompletionBody]):
    """Texts that continue prompts."""

    prefix, object, piece = "cmpl-", "text_completion", "text_completion"
    empty: ClassVar[Json] = {"text": ""}

    def __post_init__(self) -> None:
        super().__post_init__()
        options, tokenizer = self.request.options, self.tokenizer
        self._scores = [
            CompletionScores(options, tokenizer, self._prompt(i), self.prompt_text(i))
            for i in range(self.request.num_choices)
        ]

    def begin(self) -> list[bytes]:
        """The events before any text: the prompt with `echo`."""
        if not self.request.echo or self.request.options.prompt_logprobs is not None:
            return []
        indices = range(self.request.num_choices)
        return [self._event([_piece(i, {"text": self.prompt_text(i)})]) for i in indices]

    def _read(self, index: int, chunk: Chunk) -> tuple[list[Json], Json | None]:
        text = (self.prompt_text(index) if chunk.prompt_logprobs else "") + chunk.text
        return [{"text": text}] * bool(text), self._scores[index].add(chunk)

    def _whole(self, index: int, result: GenerationResult) -> Json:
        text = self.prompt_text(index) + result.text
        return {"text": text, "logprobs": self._scores[index].add(result)}

    def _prompt(self, index: int) -> Prompt:
        """The prompt of the choice with this index."""
        return self.request.prompts[index // self.request.choices_per_prompt]

    def prompt_text(self, index: int) -> str:
        """The prompt of the choice with this index, for `echo`; empty without."""
        if not self.request.echo:
            return ""
        prompt = self._prompt(index)
        return prompt if isinstance(prompt, str) else self.tokenizer.decode_all(list(prompt))  # type: ignore[arg-type]


def _piece(index: int, more: Json) -> Json:
    """A piece of a choice, with these fields."""
    return {"index": index, "finish_reason": None, "logprobs": None, **more}


def _count(prompt_tokens: int, completion_tokens: int) -> Json:
    """The counts of a prompt and its output."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def _call(call: ToolCall) -> Json:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id or new_call_id(), "type": "function", "function": function}


def chat_logprobs(tokenizer: Tokenizer, tokens: Sequence[TokenLogprobs]) -> Json:
    """Log-probabilities of a chat: of each token, and of the most likely ones at its position."""

    def described(token_id: int, logprob: float) -> Json:
        piece = tokenizer.piece(token_id)
        return {"token": as_text(piece), "logprob": finite(logprob), "bytes": list(piece)}

    content = [
        {
            **described(token.token_id, token.logprob or 0.0),
            "top_logprobs": [described(*each) for each in token.top],
        }
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def prompt_offsets(prompt: Prompt, tokenizer: Tokenizer, adds: bool) -> list[int]:
    """For each token of a prompt, the characters of its text before it.

    adds: whether the tokenizer adds special tokens to a text.
    """
    if not isinstance(prompt, str):
        text = CharacterStream(tokenizer.piece_after, [])
        ids: list[int] = list(prompt)  # type: ignore[arg-type]
        return [*accumulate((len(text.push(token)) for token in ids), initial=0)][:-1]
    spans = tokenizer.encode_rendered(prompt, add_special_tokens=adds).offsets
    ends = accumulate((end for _, end in spans), max, initial=0)
    # Tokens that the tokenizer adds have an empty span, wherever they are.
    return [start if start < end else last for (start, end), last in zip(spans, ends, strict=False)]


class CompletionScores:
    """The log-probabilities of one completion, each once the text before its token is sent.

    Until then a stop string may end the text before it. prompt_text: what is sent of the prompt.
    """

    def __init__(
        self, options: GenerationOptions, tokenizer: Tokenizer, prompt: Prompt, prompt_text: str
    ) -> None:
        self._options, self._tokenizer, self._prompt = options, tokenizer, prompt
        self._num_before = self._num_sent = len(prompt_text)
        self._tokens: list[TokenLogprobs] = []
        self._offsets: list[int] = []

    def add(self, new: Chunk | GenerationResult) -> Json | None:
        """The next ones; None if there are none. new: what is sent together with them."""
        if self._options.logprobs is None:
            return None
        if new.prompt_logprobs:
            adds = self._options.add_special_tokens is not False
            self._offsets += prompt_offsets(self._prompt, self._tokenizer, adds)
        self._offsets += [self._num_before + token.offset for token in new.logprobs]
        self._tokens += [*new.prompt_logprobs, *new.logprobs]
        self._num_sent += len(new.text)
        has_ended = new.finish_reason is not None
        count = len(self._tokens) if has_ended else bisect_right(self._offsets, self._num_sent)
        tokens, self._tokens = self._tokens[:count], self._tokens[count:]
        offsets, self._offsets = self._offsets[:count], self._offsets[count:]
        if not tokens:
            return None
        return {
            "tokens": [self._name(token.token_id) for token in tokens],
            "token_logprobs": [
                t.logprob if t.logprob is None else finite(t.logprob) for t in tokens
            ],
            "top_logprobs": [self._top_by_name(token) for token in tokens],
            "text_offset": [min(offset, self._num_sent) for offset in offsets],
        }

    def _name(self, token_id: int) -> str:
        """The text of a token; for a part of a character it begins with "bytes:", as OpenAI's."""
        piece = self._tokenizer.piece(token_id)
        try:
            return piece.decode()
        except UnicodeDecodeError:
            return f"bytes:{as_text(piece)}"

    def _top_by_name(self, token: TokenLogprobs) -> dict[str, float] | None:
        """The most likely tokens at a position, and the chosen one.

        Of several with the same text, the chosen one or else the most likely has the text as its
        name, and others their id, as in vLLM. The first token of a prompt has none.
        """
        if token.logprob is None:
            return None
        own = self._name(token.token_id)
        found: dict[str, float] = {}
        for token_id, logprob in dict((*token.top, (token.token_id, token.logprob))).items():
            name = self._name(token_id)
            if token_id != token.token_id and (name == own or name in found):
                name = f"token_id:{token_id}"
            found[name] = finite(logprob)
        return found
