"""What one request may ask for, so that it does not keep others waiting."""

import sys
import threading
import time

import pytest

from ov_specdec import GenerationOptions, SpeculativePipeline
from ov_specdec.errors import ContextLengthError
from ov_specdec.openai import ApiError, CompletionBody, read_ask
from ov_specdec.openai.body import MAX_DEPTH, MAX_VALUES
from ov_specdec.server.work import limit_work
from ov_specdec.text.prompt import require_room
from tests.server import paused, serving


@pytest.fixture(scope="module")
def pipeline(chat_pair):
    main, draft = chat_pair
    with SpeculativePipeline(main, draft, precision="exact", num_threads=1) as made:
        made.prepare(seconds=0.2)
        yield made


def completion(num_prompts=1, **fields):
    return read_ask(CompletionBody, {"prompt": [[1]] * num_prompts, **fields})


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({"max_tokens": 90}, 90),
        ({"max_tokens": 10**9}, 990),  # the context ends it
        ({"max_tokens": 90, "n": 3}, 270),
        ({"max_tokens": 90, "n": 3, "best_of": 3, "logprobs": 4}, 5 * 270),
        ({"max_tokens": 90, "num_prompts": 2, "n": 2}, 360),
    ],
)
def test_tokens_of_a_request_are_counted_together(fields, tokens):
    ask = completion(**fields)
    prompts = [[1] * 10] * len(ask.prompts)
    asked = tokens + 10 * ask.num_choices
    assert limit_work(ask, prompts, 1000, asked) is ask
    with pytest.raises(ApiError, match=f"up to {asked} tokens .* max_request_tokens={asked - 1}:"):
        limit_work(ask, prompts, 1000, asked - 1)


def test_log_probabilities_of_the_prompt_count_too():
    ask = completion(max_tokens=1, logprobs=4, echo=True, n=2)
    with pytest.raises(ApiError, match="up to 1010 tokens"):
        limit_work(ask, [[1] * 100], 1000, 1009)


def test_more_is_not_generated_than_is_returned():
    with pytest.raises(ApiError, match="best_of is only supported if it equals n"):
        completion(n=2, best_of=3)


def test_who_does_not_say_how_much_gets_what_there_is_room_for():
    ask = completion(max_tokens=1, n=4)
    ask.options["max_new_tokens"] = None
    assert limit_work(ask, [[1] * 10], 1000, 4000) is ask
    assert limit_work(ask, [[1] * 10], 1000, 400).options["max_new_tokens"] == 90
    with pytest.raises(ApiError, match="up to 44 tokens"):
        limit_work(ask, [[1] * 10], 1000, 43)


def test_a_request_for_too_much_is_a_400_that_names_the_bound(pipeline):
    with serving(pipeline, max_request_tokens=500) as server:
        ask = {"prompt": "def area(", "max_tokens": 200, "n": 8}
        answer = server.post("/v1/completions", **ask)
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "too_many_tokens"
        assert "max_request_tokens=500" in answer.json()["error"]["message"]
        assert server.post("/v1/completions", **{**ask, "n": 1, "max_tokens": 9}).is_success


def test_a_request_for_too_much_is_told_so_where_there_is_no_room_either(pipeline, monkeypatch):
    limits = {"max_batch_size": 2, "max_queue": 0, "max_request_tokens": 500}
    ask = {"prompt": "def area(", "max_tokens": 200, "stream": True}
    with (
        serving(pipeline, **limits) as server,
        paused(pipeline, monkeypatch),
        server.http.stream("POST", "/v1/completions", json=ask),
    ):
        for n, code in ((2, "queue_full"), (3, "too_many_tokens")):
            answer = server.post("/v1/completions", **{**ask, "n": n})
            assert answer.json()["error"]["code"] == code


def test_a_prompt_is_encoded_once_for_all_choices(pipeline, monkeypatch):
    encode, calls = type(pipeline.tokenizer).encode, []

    def counting(tokenizer, text, *more):
        calls.append(text)
        return encode(tokenizer, text, *more)

    monkeypatch.setattr(type(pipeline.tokenizer), "encode", counting)
    with serving(pipeline) as server:
        assert server.post("/v1/completions", prompt="x = ", n=5, max_tokens=2).is_success
    assert calls == ["x = "]


def test_options_are_checked_as_often_for_many_choices_as_for_one(pipeline, monkeypatch):
    check, checks = GenerationOptions.__post_init__, []

    def counting(options):
        checks.append(options)
        check(options)

    monkeypatch.setattr(GenerationOptions, "__post_init__", counting)
    begin, begun = type(pipeline._generator).begin, []

    def beginning(generator, ids, options, *more):
        begun.append(options)
        return begin(generator, ids, options, *more)

    monkeypatch.setattr(type(pipeline._generator), "begin", beginning)
    fields = {"prompt": "x = ", "max_tokens": 1, "seed": 3, "suppress_tokens": [5, 6]}
    with serving(pipeline) as server:
        num_checks = []
        for n in (1, 9):
            assert server.post("/v1/completions", **fields, n=n).is_success
            num_checks.append(len(checks))
            checks.clear()
    assert num_checks[0] == num_checks[1]
    assert [options.choice for options in begun] == [0, *range(9)]
    assert len({id(options.suppress_tokens) for options in begun[1:]}) == 1


def test_a_length_that_the_limit_sets_is_checked_against_the_least_length(pipeline):
    ask = {"messages": [{"role": "user", "content": "Hi"}], "n": 4, "min_tokens": 40}
    with serving(pipeline, max_request_tokens=200) as server:
        answer = server.post("/v1/chat/completions", **ask)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "min_tokens"


MESSAGE = {"role": "user", "content": "Hi"}


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/v1/completions", {"prompt": "ab" * 200_000}, "has 400000 characters"),
        ("/v1/chat/completions", {"messages": [MESSAGE] * 300}, "has 300 messages"),
        (
            "/v1/chat/completions",
            {"messages": [{**MESSAGE, "content": "ab" * 200_000}]},
            "the prompt has 4000",
        ),
        (
            "/v1/chat/completions",
            {
                "messages": [MESSAGE],
                "prediction": {"type": "content", "content": "ab" * 200_000},
            },
            "has 400000 characters",
        ),
        ("/tokenize", {"prompt": "ab" * 200_000}, "has 400000 characters"),
    ],
)
def test_what_no_context_can_hold_is_refused_before_it_is_encoded(
    pipeline, monkeypatch, path, body, words
):
    encode, longest = type(pipeline.tokenizer)._encode, []

    def noted(tokenizer, text, **more):
        longest.append(len(text))
        return encode(tokenizer, text, **more)

    monkeypatch.setattr(type(pipeline.tokenizer), "_encode", noted)
    with serving(pipeline) as server:
        answer = server.post(path, **body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "context_length_exceeded")
    assert words in error["message"]
    assert max(longest, default=0) < 300


class Pairs:
    """A tokenizer whose tokens have two characters."""

    max_token_length = 2


@pytest.mark.parametrize("text", ["ab" + " \n" * 100_000, "e\u0301" * 100], ids=["spaces", "marks"])
def test_what_a_tokenizer_may_join_has_room(text):
    require_room("the prompt", text, Pairs(), context=50)
    with pytest.raises(ContextLengthError, match=r"the prompt has \d+ characters, and"):
        require_room("the prompt", text + "ab" * 200, Pairs(), context=50)


def test_other_threads_run_while_a_text_is_encoded(pipeline):
    ticks, ended = [0], threading.Event()

    def tick():
        while not ended.is_set():
            ticks[0] += 1
            time.sleep(0)  # who waits has its turn

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # no thread loses its turn but by its own will
    thread = threading.Thread(target=tick)
    try:
        thread.start()
        before = ticks[0]
        pipeline.tokenizer.encode("area " * 50_000)
        after = ticks[0]
    finally:
        sys.setswitchinterval(interval)
        ended.set()
        thread.join()
    assert after > before


def nested(depth):
    return [] if depth == 1 else [nested(depth - 1)]


@pytest.mark.parametrize("depth", [MAX_DEPTH, 480, 900])
@pytest.mark.parametrize("field", ["chat_template_kwargs", "tools", "zzz"])
def test_a_body_that_is_nested_deeply_is_refused(pipeline, field, depth):
    with serving(pipeline) as server:
        body = {"messages": [MESSAGE], field: {"a": nested(depth)}}
        answer = server.post("/v1/chat/completions", **body)
    assert answer.status_code == 400
    assert f"nested more than {MAX_DEPTH} deep" in answer.json()["error"]["message"]


def test_a_body_that_is_a_deep_list_is_refused():
    with pytest.raises(ApiError, match=f"nested more than {MAX_DEPTH} deep"):
        read_ask(CompletionBody, nested(900))


def test_a_body_may_hold_so_many_values():
    fields = {"prompt": "a", "max_tokens": 1}
    assert read_ask(CompletionBody, {**fields, "zzz": [[]] * (MAX_VALUES - 3)}).n == 1
    with pytest.raises(ApiError, match=f"more than {MAX_VALUES} values"):
        read_ask(CompletionBody, {**fields, "zzz": [[]] * (MAX_VALUES - 2)})


def test_a_salt_is_short(pipeline):
    with serving(pipeline) as server:
        answer = server.post("/v1/completions", prompt="a", max_tokens=1, cache_salt="x" * 257)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "cache_salt")
        answer = server.post("/v1/completions", prompt="a", max_tokens=1, cache_salt="x" * 256)
        assert answer.status_code == 200
