"""Requests in OpenAI's form as bodies, and their answers."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from ov_specdec.api.body import UnknownFields, read
from ov_specdec.api.errors import ApiError
from ov_specdec.openai.dialect import OPENAI
from ov_specdec.openai.requests import ChatBody, CompletionBody, ResponsesBody
from ov_specdec.results.chunks import Chunk, GenerationResult
from ov_specdec.results.stats import GenerationStats, RoundStats
from ov_specdec.text.generated_tokens import EncodedText

ANSWERS = {each.body: each.answer for each in OPENAI.posts.values() if hasattr(each, "body")}
MESSAGES = [{"role": "user", "content": "Hello"}]
STRICT = UnknownFields(strict=True)


def chat(**fields):
    return read(ChatBody, {"messages": MESSAGES, **fields}, STRICT)


def completion(**fields):
    return read(CompletionBody, {"prompt": "def f(", **fields}, STRICT)


def responses(**fields):
    return read(ResponsesBody, {"input": "Hello", **fields}, STRICT)


def body_of(own, results):
    fresh = replace(own)
    fresh.id = own.id
    for choice, done in zip(fresh.choices, results, strict=True):
        names = "text token_ids finish_reason stats logprobs prompt_logprobs"
        choice.add(Chunk(origin="plain", **{name: getattr(done, name) for name in names.split()}))
    return json.loads(json.dumps(fresh.whole()))


def refused(read, **fields):
    with pytest.raises(ApiError) as error:
        read(**fields)
    assert error.value.status == 400
    return error.value


TYPED = {"type": "json_schema"}


def round_of(num_drafted, num_accepted, num_generated, cached_tokens=0):
    return RoundStats(
        num_drafted, num_accepted, num_generated, 0, 0, 0, 0, cached_tokens=cached_tokens
    )


def result(text="Hi", finish_reason="stop", **settings):
    # The last round is cut by a stop string: two of its five tokens are part of the text.
    rounds = [round_of(0, 0, 1, cached_tokens=2), round_of(3, 1, 2), round_of(4, 2, 2)]
    stats = GenerationStats(5, rounds)
    return GenerationResult(text, [1, 2, 3, 4, 5], finish_reason, stats, **settings)


def answer(ask):
    def decode(ids):
        return "".join(f"<{token}>" for token in ids)

    def encode(text, *, add_special_tokens):
        spans = [(0, 0)] * add_special_tokens + [(i, i + 1) for i in range(len(text))]
        return EncodedText(text, [], spans)

    def piece(token):
        return decode([token]).encode()

    def piece_after(_before, token):
        return piece(token)

    tokenizer = SimpleNamespace(
        decode_all=decode, piece=piece, piece_after=piece_after, encode_rendered=encode
    )
    made = ANSWERS[type(ask)](ask, "model", tokenizer, created=1700000000)
    made.id = "id-1"
    return made


def data_of(event):
    return json.loads(event.rpartition("data: ")[2])
