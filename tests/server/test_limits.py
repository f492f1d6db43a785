"""What one request may ask for, so that it does not keep others waiting."""

from types import SimpleNamespace

import pytest
from tokenizers import Tokenizer as BackendTokenizer
from tokenizers import models, pre_tokenizers

from ov_specdec.api.body import MAX_DEPTH, MAX_VALUES, read
from ov_specdec.api.errors import ApiError
from ov_specdec.openai.requests import CompletionBody
from ov_specdec.server.limits import limit_work
from ov_specdec.text.prompt import may_fit
from tests.support.server import serving


def completion(num_prompts=1, **fields):
    return read(CompletionBody, {"prompt": [[1]] * num_prompts, **fields})


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({"max_tokens": 90}, 90),
        ({"max_tokens": 10**9}, 990),  # the context ends it
        ({"max_tokens": 90, "n": 3}, 270),
        ({"max_tokens": 90, "n": 3, "best_of": 3, "logprobs": 4}, 5 * 270),
        ({"max_tokens": 90, "num_prompts": 2, "n": 2}, 360),
        # Log-probabilities of the prompt count too.
        ({"max_tokens": 1, "n": 2, "logprobs": 4, "echo": True}, 2 * (5 + 4 * 10)),
    ],
)
def test_tokens_of_a_request_are_counted_together(fields, tokens):
    ask = completion(**fields)
    lengths = [10] * len(ask.prompts)
    asked = tokens + 10 * ask.num_choices
    wanted = ask.options.max_new_tokens
    assert limit_work(ask, wanted, lengths, 1000, asked) == wanted
    with pytest.raises(ApiError, match=f"up to {asked} tokens .* max_request_tokens={asked - 1}:"):
        limit_work(ask, wanted, lengths, 1000, asked - 1)


def test_who_does_not_say_how_much_gets_what_there_is_room_for():
    ask = completion(n=4)
    assert limit_work(ask, None, [10], 1000, 4000) is None
    assert limit_work(ask, None, [10], 1000, 400) == 90
    with pytest.raises(ApiError, match="up to 44 tokens"):
        limit_work(ask, None, [10], 1000, 43)


def test_a_request_for_too_much_is_a_400_that_names_the_bound(pipeline):
    with serving(pipeline, max_request_tokens=500) as server:
        ask = {"prompt": "def area(", "max_tokens": 200, "n": 8}
        answer = server.post("/v1/completions", **ask)
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "too_many_tokens"
        assert "max_request_tokens=500" in answer.json()["error"]["message"]
        assert server.post("/v1/completions", **{**ask, "n": 1, "max_tokens": 9}).is_success


def test_a_prompt_is_encoded_once_for_all_choices(pipeline, monkeypatch):
    encode, calls = type(pipeline.tokenizer).encode_rendered, []

    def counting(tokenizer, text, *more, **named):
        calls.append(text)
        return encode(tokenizer, text, *more, **named)

    monkeypatch.setattr(type(pipeline.tokenizer), "encode_rendered", counting)
    with serving(pipeline) as server:
        assert server.post("/v1/completions", prompt="x = ", n=5, max_tokens=2).is_success
    assert calls == ["x = "]


def test_a_length_that_the_limit_sets_is_checked_against_the_least_length(pipeline):
    ask = {"messages": [{"role": "user", "content": "Hi"}], "n": 4, "min_tokens": 40}
    with serving(pipeline, max_request_tokens=200) as server:
        answer = server.post("/v1/chat/completions", **ask)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "min_tokens"


MESSAGE = {"role": "user", "content": "Hi"}
LONG = 400_000
OVERFLOW = "context_length_exceeded"


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        *(("/v1/completions", {"prompt": unit * LONG}, OVERFLOW) for unit in ("ab", " ", "日")),
        ("/v1/completions", {"prompt": ["a", " " * LONG]}, OVERFLOW),
        ("/v1/completions", {"prompt": ["ab " * 60] * 100, "max_tokens": 1}, "too_many_tokens"),
        ("/v1/chat/completions", {"messages": [{**MESSAGE, "content": " " * LONG}]}, OVERFLOW),
        (
            "/v1/chat/completions",
            {"messages": [MESSAGE], "prediction": {"type": "content", "content": "ab" * LONG}},
            None,
        ),
        ("/v1/responses", {"input": "\t" * LONG + "a"}, OVERFLOW),
        ("/tokenize", {"prompt": "ab" * LONG}, "too_many_tokens"),
    ],
)
def test_what_no_context_can_hold_is_not_encoded_to_its_end(
    pipeline, monkeypatch, path, body, code
):
    encode, lengths = type(pipeline.tokenizer).encode_rendered, []

    def noted(tokenizer, text, *language, **more):
        lengths.append(len(text))
        return encode(tokenizer, text, *language, **more)

    monkeypatch.setattr(type(pipeline.tokenizer), "encode_rendered", noted)
    with serving(pipeline, max_request_tokens=1000) as server:
        answer = server.post(path, **body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)
    assert sum(lengths) < 10_000


def test_a_text_beyond_the_context_can_be_counted(pipeline):
    with serving(pipeline) as server:
        answer = server.post("/tokenize", prompt="x" * 5000).json()
    assert (answer["count"], answer["max_model_len"]) == (5000, 256)


@pytest.mark.parametrize(
    "pieces", [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.BertPreTokenizer()]
)
def test_spaces_that_a_tokenizer_leaves_out_do_not_count(pieces):
    backend = BackendTokenizer(models.WordLevel({"a": 0}))
    backend.pre_tokenizer = pieces
    tokenizer = SimpleNamespace(encode_rendered=backend.encode)
    assert may_fit("a" + " \n" * 10_000 + "a", tokenizer, 50)
    assert may_fit("a " * 50, tokenizer, 50)
    assert not may_fit("a " * 1000, tokenizer, 50)


def test_a_body_may_hold_so_many_values_so_deep():
    fields, deep = {"prompt": "a", "max_tokens": 1}, []
    for _ in range(MAX_DEPTH - 2):
        deep = [deep]
    assert read(CompletionBody, {**fields, "zzz": deep}).num_choices == 1
    with pytest.raises(ApiError, match=f"nested more than {MAX_DEPTH} deep"):
        read(CompletionBody, {**fields, "zzz": [deep]})
    assert read(CompletionBody, {**fields, "zzz": [[]] * (MAX_VALUES - 3)}).num_choices == 1
    with pytest.raises(ApiError, match=f"more than {MAX_VALUES} values"):
        read(CompletionBody, {**fields, "zzz": [[]] * (MAX_VALUES - 2)})
