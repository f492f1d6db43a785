"""Answers of /v1/chat/completions and /v1/completions: make OpenAI's bodies from results."""

from codecs import getincrementaldecoder
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import time
from typing import Any
from uuid import uuid4

from ov_specdec.chunks import GenerationResult
from ov_specdec.logprobs import TokenLogprobs, finite
from ov_specdec.openai.ask import Ask
from ov_specdec.stats import GenerationStats
from ov_specdec.text.token_bytes import as_text
from ov_specdec.text.tokenizer import Tokenizer

MATCHES = "suffix"
"""The source of draft tokens that a prediction extends."""

PREFIXES = {"chat": "chatcmpl-", "completions": "cmpl-", "responses": "resp_"}
"""Prefixes of the ids of answers, by endpoint."""

OBJECTS = {"chat": "chat.completion", "completions": "text_completion"}


@dataclass(frozen=True)
class Answer:
    """The common data of all bodies of one answer.

    id: of the request. model: its served name. created: seconds since 1970. decode: the text of
    token ids, special tokens included. piece: the bytes of a token.
    """

    ask: Ask
    id: str
    model: str
    created: int
    decode: Callable[[Sequence[int]], str]
    piece: Callable[[int], bytes]

    @classmethod
    def begin(cls, ask: Ask, model: str, tokenizer: Tokenizer) -> "Answer":
        """A new answer to a request, created now."""
        name = PREFIXES[ask.endpoint] + uuid4().hex
        return cls(ask, name, model, int(time()), tokenizer.decode_all, tokenizer.piece)

    def head(self, object_: str) -> dict[str, Any]:
        """The first fields of every body."""
        return {
            "id": self.id,
            "object": object_,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": None,
        }

    def prompt_text(self, index: int) -> str:
        """The prompt of the choice with this index, for `echo`."""
        prompt = self.ask.prompts[index // self.ask.n]
        return prompt if isinstance(prompt, str) else self.decode(list(prompt))  # type: ignore[arg-type]


def make_completion(answer: Answer, results: Sequence[GenerationResult]) -> dict[str, Any]:
    """The body of an answer that is not streamed. results: of `Ask.generations`, in that order."""
    choice = _chat_choice if answer.ask.endpoint == "chat" else _completion_choice
    stats = [result.stats for result in results]
    return {
        **answer.head(OBJECTS[answer.ask.endpoint]),
        "choices": [choice(answer, index, result) for index, result in enumerate(results)],
        "usage": make_usage(answer.ask, stats),
        **make_metrics(stats),
    }


def make_usage(ask: Ask, stats: Sequence[GenerationStats]) -> dict[str, Any]:
    """Counts of tokens. stats: of all choices; those of one prompt count it once."""
    first = stats[:: ask.n]
    prompt_tokens = sum(each.prompt_tokens for each in first)
    completion_tokens = sum(each.generated_tokens for each in stats)
    details = {} if ask.prediction is None else {"completion_tokens_details": _predicted(stats)}
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": sum(each.cached_tokens for each in first)},
        **details,
    }


def _predicted(stats: Sequence[GenerationStats]) -> dict[str, int]:
    """Draft tokens from matches, in the prediction or in the text so far."""
    rounds = [r for each in stats for r in each.rounds if r.source == MATCHES]
    accepted = sum(r.num_kept for r in rounds)
    return {
        "accepted_prediction_tokens": accepted,
        "rejected_prediction_tokens": sum(r.num_drafted for r in rounds) - accepted,
    }


def make_metrics(stats: Sequence[GenerationStats]) -> dict[str, Any]:
    """Statistics of speculation, in vLLM's shape; none for several choices or without drafts.

    Only rounds with draft tokens count, and only their tokens within the text.
    """
    if len(stats) != 1:
        return {}
    rounds = [r for r in stats[0].rounds if r.num_drafted]
    if not rounds:
        return {}
    accepted = [r.num_kept for r in rounds]
    longest = max(r.num_drafted for r in rounds)
    num_drafted = sum(r.num_drafted for r in rounds)
    summary = {
        "mean_acceptance_length": 1 + sum(accepted) / len(rounds),
        "draft_acceptance_rate": sum(accepted) / num_drafted,
        "acceptance_histogram": [accepted.count(length) for length in range(longest + 1)],
        "num_spec_steps": len(rounds),
        "num_spec_tokens": longest,
        "num_draft_tokens": num_drafted,
        "num_accepted_draft_tokens": sum(accepted),
    }
    return {"metrics": {"speculative_decoding": summary}}


def chat_logprobs(answer: Answer, tokens: Sequence[TokenLogprobs]) -> dict[str, Any] | None:
    """Log-probabilities in the shape of /v1/chat/completions; None if not requested."""
    if answer.ask.logprobs is None:
        return None
    return {"content": [_describe(answer, token) for token in tokens], "refusal": None}


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


def completion_logprobs(
    answer: Answer, tokens: Sequence[TokenLogprobs], offsets: TextOffsets
) -> dict[str, Any] | None:
    """Log-probabilities in the shape of /v1/completions. offsets: of the tokens before these."""
    if answer.ask.logprobs is None:
        return None
    pieces = [answer.piece(token.token_id) for token in tokens]
    return {
        "tokens": [as_text(piece) for piece in pieces],
        "token_logprobs": [None if t.logprob is None else finite(t.logprob) for t in tokens],
        "top_logprobs": [_top_by_text(answer, token) for token in tokens],
        "text_offset": [offsets.of(piece) for piece in pieces],
    }


def _chat_choice(answer: Answer, index: int, result: GenerationResult) -> dict[str, Any]:
    return {
        "index": index,
        "message": {"role": "assistant", "content": result.text, "refusal": None},
        "logprobs": chat_logprobs(answer, result.logprobs),
        "finish_reason": result.finish_reason,
    }


def _completion_choice(answer: Answer, index: int, result: GenerationResult) -> dict[str, Any]:
    before = answer.prompt_text(index) if answer.ask.echo else ""
    tokens = [*result.prompt_logprobs, *result.logprobs]
    return {
        "index": index,
        "text": before + result.text,
        "logprobs": completion_logprobs(answer, tokens, TextOffsets()),
        "finish_reason": result.finish_reason,
    }


def _describe(answer: Answer, token: TokenLogprobs) -> dict[str, Any]:
    top = [_text_and_logprob(answer, *each) for each in token.top]
    return {**_text_and_logprob(answer, token.token_id, token.logprob or 0.0), "top_logprobs": top}


def _text_and_logprob(answer: Answer, token_id: int, logprob: float) -> dict[str, Any]:
    piece = answer.piece(token_id)
    return {"token": as_text(piece), "logprob": finite(logprob), "bytes": list(piece)}


def _top_by_text(answer: Answer, token: TokenLogprobs) -> dict[str, float] | None:
    """The most likely tokens at a position, and the chosen one; the first of equal texts."""
    if token.logprob is None:
        return None
    found: dict[str, float] = {}
    for token_id, logprob in (*token.top, (token.token_id, token.logprob)):
        found.setdefault(as_text(answer.piece(token_id)), finite(logprob))
    return found
