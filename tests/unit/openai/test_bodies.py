"""OpenAI's fields to ours and back, without a model and without sockets."""

import tracemalloc
from dataclasses import replace

import pytest
from pydantic import ValidationError

from ov_specdec.api.body import MAX_LOGGED, UnknownFields, read
from ov_specdec.api.errors import ApiError, from_exception
from ov_specdec.errors import CacheFullError, ContextLengthError, LogitsError, Option, OptionError
from ov_specdec.openai.dialect import DetokenizeBody
from ov_specdec.openai.requests import ChatBody, CompletionBody, ResponsesBody
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.results.chunks import Chunk, GenerationResult
from ov_specdec.results.stats import GenerationStats
from ov_specdec.sampling.logits import TokenLogprobs
from tests.support.bodies import (
    MESSAGES,
    STRICT,
    TYPED,
    answer,
    body_of,
    chat,
    completion,
    data_of,
    refused,
    responses,
    result,
    round_of,
)


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({}, {"max_new_tokens": None}),
        ({"max_tokens": 7, "max_completion_tokens": 7}, {"max_new_tokens": 7}),
        ({"stop": ["a", "b"]}, {"stop_strings": ["a", "b"]}),
        ({"seed": -1}, {"seed": 2**64 - 1}),
        ({"logit_bias": {"5": -100}}, {"logit_bias": {5: -100.0}}),
        ({"logprobs": True, "top_logprobs": 3}, {"logprobs": 3}),
        ({"logprobs": True}, {"logprobs": 0}),
    ],
)
def test_fields_become_options(fields, options):
    ask = chat(**fields)
    assert ask.options == GenerationOptions(**options)


def test_a_completion_may_be_a_translation():
    given = {"src_lang": "eng_Latn", "tgt_lang": "fra_Latn"}
    assert given.items() <= dict(completion(**given).options).items()
    assert completion(forced_bos_token_id=0).options.forced_bos_token_id == 0
    assert refused(completion, forced_bos_token_id=-1).param == "forced_bos_token_id"
    assert refused(chat, tgt_lang="fra_Latn").param == "tgt_lang"


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": []},
        {"tool_choice": "auto", "functions": [], "function_call": "none"},
        {"store": False},
        {"response_format": {"type": "text"}},
        {"parallel_tool_calls": True},
        {"modalities": ["text"]},
        {"metadata": {"run": "7"}, "verbosity": "low"},
        {"tools": None, "stop": None, "n": None, "audio": None, "anything": None},
    ],
)
def test_neutral_values_pass(fields):
    assert (chat(**fields).options, chat(**fields).prompts) == (chat().options, chat().prompts)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"messages": []}, "messages=[] must not be empty"),
        ({"messages": [{"content": "x"}]}, "messages[0].role is missing"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            'messages[0].content=[{"type": "image_url"}] must be a text or a list of parts',
        ),
        ({"temperature": -1}, "temperature=-1 must be greater than or equal to 0"),
        ({"max_tokens": 1.5}, "max_tokens=1.5 must be a whole number"),
        ({"max_tokens": 1, "max_completion_tokens": 2}, "max_tokens=1 contradicts max_completion"),
        ({"top_logprobs": 3}, "top_logprobs=3 needs logprobs=true"),
        ({"stop": ""}, 'stop="" must be a text or up to 16, none empty'),
        ({"stop_token_ids": [-1]}, "stop_token_ids[0]=-1"),
        ({"logit_bias": {"x": 1}}, 'logit_bias={"x": 1} holds "x": keys must be token ids'),
        ({"stream_options": {"include_usage": True}}, "stream_options has no effect without"),
        ({"store": True}, "store=true is not supported: only false is taken"),
        ({"metadata": {"a": 1}}, "metadata.a=1"),
        ({"verbosity": "loud"}, 'verbosity="loud" must be'),
        ({"response_format": {"type": "xml"}}, "response_format.type="),
        ({"response_format": {"type": "json_schema"}}, "the format has no schema"),
        (
            {"response_format": {"type": "json_schema", "schema": {}}},
            "response_format.schema={} is not supported: give response_format.json_schema.schema",
        ),
        (
            {"response_format": {"type": "text", "json_schema": {"schema": {}}}},
            'response_format.json_schema contradicts response_format.type="text": give the type',
        ),
        ({"structured_outputs": {}}, "structured_outputs is empty"),
        (
            {"structured_outputs": {"regex": "a", "choice": ["a"]}},
            'structured_outputs.regex="a" is',
        ),
        (
            {"num_assistant_tokens": 33},
            "num_assistant_tokens=33 must be a whole number from 0 to 32, or auto",
        ),
        ({"max_token": 5}, "max_token=5 is not supported: did you mean max_tokens?"),
        ({"stop_strings": "a"}, 'stop_strings="a" is not supported: did you mean stop?'),
        ({"zzz": 5}, "zzz=5 is not supported: leave it out"),
        ({"cache_salt": "\ud800"}, "cache_salt="),
        (
            {"add_generation_prompt": True, "continue_final_message": True},
            "add_generation_prompt=true begins an answer, so it contradicts "
            "continue_final_message=true",
        ),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(fields, message):
    error = refused(chat, **fields)
    assert error.param.partition("[")[0].partition(".")[0] in fields
    assert error.message.startswith(message)


@pytest.mark.parametrize(
    ("name", "value", "where", "most"),
    [
        ("suppress_tokens", [1] * 1025, "suppress_tokens", 1024),
        ("bad_words_ids", [[1], [1] * 33], "bad_words_ids[1]", 32),
        ("logit_bias", {str(i): 1 for i in range(16_385)}, "logit_bias", 16_384),
    ],
)
def test_a_list_has_a_bound_that_its_error_names(name, value, where, most):
    error = refused(chat, **{name: value})
    assert error.param == where
    assert error.message.endswith(f"must have at most {most} entries")
    if where == name:
        kept = dict([*value.items()][:most]) if isinstance(value, dict) else value[:most]
        assert len(getattr(chat(**{name: kept}).options, name)) == most


@pytest.mark.parametrize(
    ("fields", "newer"),
    [
        ({"guided_json": {}}, "structured_outputs.json"),
        ({"grammar": "root ::= a"}, "structured_outputs.grammar, in Lark"),
        ({"json_schema": {}}, "response_format, or structured_outputs.json"),
    ],
)
def test_older_names_of_structured_output_are_refused_with_the_newer_ones(fields, newer):
    for ask in (chat, completion, responses):
        error = refused(ask, **fields)
        assert ([error.param], error.code) == ([*fields], "unsupported_value")
        assert error.message.endswith(f"is not supported: give {newer}")


NAMED = {"name": "point", "strict": True, "schema": {"type": "object"}}


def test_every_endpoint_takes_structured_output():
    assert chat().options == chat(response_format={"type": "text"}).options
    for ask in (chat, completion):
        form = {"type": "json_schema", "json_schema": NAMED}
        assert ask(response_format=form).options.json_schema == {"type": "object"}
        assert ask(response_format={"type": "json_object"}).options.json_object
    for ask in (chat, completion, responses):
        outputs = {"json": "{}", "json_object": True, "regex": "a", "choice": ["a"], "grammar": "b"}
        for name, value in outputs.items():
            own = {"json": "json_schema", "choice": "choices"}.get(name, name)
            given = ask(structured_outputs={name: value, "disable_any_whitespace": True})
            assert getattr(given.options, own) == (("a",) if name == "choice" else value)
        both = {"regex": "a", "json_object": True}
        error = refused(ask, structured_outputs=both)
        assert "is a constraint, and so is structured_outputs.regex" in error.message
    text = {"format": {"type": "json_schema", **NAMED}, "verbosity": "low"}
    asked = responses(text=text)
    assert asked.options.json_schema == {"type": "object"}
    assert asked.settings["text"] == text
    assert responses().settings["text"] == {"format": {"type": "text"}}
    error = refused(responses, text={"format": {"type": "json_object"}}, ignore_eos=True)
    assert (error.param, "contradicts ignore_eos=true" in error.message) == ("text.format", True)
    error = refused(responses, response_format={"type": "json_object"})
    assert error.message.endswith('only {"type": "text"} is taken') is False
    assert "give text.format" in error.message


def test_a_response_repeats_what_it_knows_of_its_format():
    form = {"type": "json_schema", **NAMED}
    body = {"input": "Hello", "text": {"format": {**form, "unknown": 1}}}
    asked = read(ResponsesBody, body)
    assert asked.settings["text"] == {"format": form}
    told = body_of(answer(asked), [GenerationResult("{}", [1], "stop", GenerationStats(5, []))])
    assert told["text"]["format"]["name"] == "point"


@pytest.mark.parametrize("ask", [chat, completion, responses])
def test_an_error_names_the_field_that_was_given(ask):
    form, fields = "response_format", {"response_format": {**TYPED, "json_schema": NAMED}}
    if ask is responses:
        form, fields = "text.format", {"text": {"format": {**TYPED, **NAMED}}}
    error = refused(ask, **fields, structured_outputs={"json": {}})
    assert error.param == form
    assert f"{form} contradicts structured_outputs.json" in error.message
    for name, value in (("json", {}), ("json_object", True)):
        outputs = {name: value}
        error = refused(ask, structured_outputs=outputs, ignore_eos=True)
        assert error.param == f"structured_outputs.{name}"
        option = {"json": "json_schema"}.get(name, name)
        later = from_exception(
            OptionError("{hard} is hard", hard=Option(option)),
            "",
            ask(structured_outputs=outputs).names,
        )
        assert later.message == f"structured_outputs.{name} is hard"
    later = from_exception(OptionError("{json_schema}", json_schema=...), "", ask(**fields).names)
    assert later.param == form
    assert refused(ask, structured_outputs={"json": "{"}).param == "structured_outputs.json"


@pytest.mark.parametrize(
    ("ask", "fields", "neutral"),
    [
        (chat, {"tgt_lang": "fra_Latn"}, {"tgt_lang": None}),
        (responses, {"forced_bos_token_id": 5}, {}),
        (completion, {"continue_final_message": True}, {"continue_final_message": False}),
        (completion, {"chat_template_kwargs": {"a": 1}}, {}),
    ],
)
def test_an_option_that_other_endpoints_have_is_refused(ask, fields, neutral):
    error = refused(ask, **fields)
    assert ([error.param], error.code) == ([*fields], "unsupported_value")
    assert ask(**neutral).options == ask().options


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [("", ("",)), ([1, 2], ([1, 2],)), (["a", "b"], ("a", "b")), (["a", [1]], ("a", [1]))],
)
def test_a_completion_takes_one_prompt_or_several(prompt, prompts):
    assert completion(prompt=prompt).prompts == prompts


@pytest.mark.parametrize("prompt", [None, 3, [], [[]], [True], [1, "a"], {"a": 1}, [1.5]])
def test_a_prompt_of_another_kind_is_refused(prompt):
    assert refused(completion, prompt=prompt).param == "prompt"


def test_a_completion_has_choices_for_each_prompt():
    ask = completion(prompt=["a", "b"], n=2, best_of=2)
    assert (ask.choices_per_prompt, ask.num_choices) == (2, 4)
    assert refused(completion, n=2, best_of=3).param == "best_of"


def test_null_in_messages_is_left_out_and_developers_are_the_system():
    message = {"role": "developer", "content": "x", "name": None}
    assert chat(messages=[message]).prompts == ([{"role": "system", "content": "x"}],)


def test_parts_of_a_content_are_those_of_templates():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    asked = chat(messages=[{"role": "user", "content": [{**parts[0], "detail": 1}, parts[1]]}])
    assert asked.prompts == ([{"role": "user", "content": parts}],)


def test_a_prediction_is_a_text_or_parts():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    for content, text in ((parts, "a\nb"), ("a", "a")):
        ask = chat(prediction={"type": "content", "content": content})
        assert ask.options.reference_texts == (text,)


def test_a_prediction_is_looked_for_matches_in_and_counted():
    ask = chat(prediction={"type": "content", "content": "a"})
    assert chat(prediction={"type": "content", "content": ""}).options.reference_texts == ()
    rounds = [
        replace(round_of(4, 3, 4), source="suffix"),
        replace(round_of(2, 2, 3), source="model"),
    ]
    told = GenerationResult("Hi", [1], "stop", GenerationStats(5, rounds))
    details = body_of(answer(ask), [told])["usage"]["completion_tokens_details"]
    assert details == {"accepted_prediction_tokens": 3, "rejected_prediction_tokens": 1}


def test_an_unknown_name_is_logged_once_and_ignored_or_refused(caplog):
    body = {"messages": MESSAGES, "max_token": 5, "stream_options": {"x": 1}, "stream": True}
    unknown = UnknownFields()
    for _ in range(2):
        assert read(ChatBody, body, unknown).options == chat().options
    assert [record.getMessage() for record in caplog.records] == [
        "'max_token' is ignored in requests: did you mean max_tokens?",
        "'stream_options.x' is ignored in requests: it is not a known field",
    ]
    assert refused(read, kind=ChatBody, content=body, unknown=STRICT).code == "unknown_parameter"


def test_names_that_requests_make_up_fill_neither_memory_nor_log(caplog):
    unknown = UnknownFields()
    for number in range(2 * MAX_LOGGED):
        unknown.check(f"{number}{'x' * 10_000}", 1, {})
    assert len(caplog.records) == MAX_LOGGED
    assert max(len(record.getMessage()) for record in caplog.records) < 200


@pytest.mark.parametrize("name", ["stream", "user", "num_assistant_tokens"])
def test_a_long_value_makes_no_long_message(name):
    value = ["a" * 1000] * 100
    assert len(refused(chat, **{name: value}).message) < 200


MANY = 30_000


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (CompletionBody, {"prompt": [True] * MANY}),
        (ChatBody, {"messages": MESSAGES, "suppress_tokens": ["x"] * MANY}),
        (ChatBody, {"messages": MESSAGES, "logit_bias": {str(i): "x" for i in range(MANY)}}),
        (ResponsesBody, {"input": "x", "metadata": {str(i): 1 for i in range(MANY)}}),
        (DetokenizeBody, {"tokens": ["x"] * MANY}),
    ],
)
def test_a_body_of_errors_is_refused_at_the_first(kind, fields):
    tracemalloc.start()
    try:
        with pytest.raises(ApiError) as error:
            read(kind, fields)
        assert isinstance(error.value.__cause__, ValidationError)
        assert error.value.__cause__.error_count() < 10
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()


def test_responses_take_a_text_or_messages():
    ask = responses(instructions="Be brief", max_output_tokens=5)
    assert ask.prompts == (
        [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Hello"}],
    )
    assert ask.options.max_new_tokens == 5
    answer = {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant"}
    answer["content"] = [{"type": "output_text", "text": "Hi", "annotations": []}]
    earlier = [{"role": "user", "content": [{"type": "input_text", "text": "Hello"}]}, answer]
    parts = ([{"type": "text", "text": text}] for text in ("Hello", "Hi"))
    roles = ("user", "assistant")
    told = [{"role": role, "content": own} for role, own in zip(roles, parts, strict=True)]
    assert responses(input=earlier).prompts == (told,)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": []}, "input"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content"),
        ({"store": True}, "store"),
        ({"tools": [{"type": "web_search"}]}, "tools.web_search"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"metadata": {"a": 1}}, "metadata.a"),
    ],
)
def test_what_responses_cannot_honour_is_refused_by_name(fields, param):
    assert refused(responses, **fields).param == param


def test_an_answer_counts_tokens_and_drafts():
    body = body_of(answer(chat()), [result()])
    assert (body["id"], body["created"], body["model"]) == ("id-1", 1700000000, "model")
    [choice] = body["choices"]
    message = {"role": "assistant", "content": "Hi", "refusal": None}
    assert (choice["message"], choice["finish_reason"]) == (message, "stop")
    assert body["usage"] == {
        **{"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10},
        "prompt_tokens_details": {"cached_tokens": 2},
    }
    assert body["metrics"]["speculative_decoding"] == {
        **{"mean_acceptance_length": 2.5, "draft_acceptance_rate": 3 / 7},
        "acceptance_histogram": [0, 1, 1, 0, 0],
        **{"num_spec_steps": 2, "num_spec_tokens": 4},
        **{"num_draft_tokens": 7, "num_accepted_draft_tokens": 3},
    }


def test_a_prompt_with_several_choices_is_counted_once():
    ask = completion(prompt=["a", "b"], n=2)
    body = body_of(answer(ask), [result()] * 4)
    assert body["usage"]["prompt_tokens"] == 10
    assert body["usage"]["completion_tokens"] == 20
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
    assert "metrics" not in body


SCORED = {
    "logprobs": [
        TokenLogprobs(7, -0.5, ((7, -0.5), (8, -1.5))),
        TokenLogprobs(8, -float("inf"), ((7, -0.1), (9, -3.0)), offset=3),
    ]
}


def test_log_probabilities_of_a_chat():
    body = body_of(answer(chat(logprobs=True, top_logprobs=2)), [result(**SCORED)])
    first, second = body["choices"][0]["logprobs"]["content"]
    top = first.pop("top_logprobs")
    assert first == {"token": "<7>", "bytes": list(b"<7>"), "logprob": -0.5}
    assert [each["token"] for each in top] == ["<7>", "<8>"]
    assert second["logprob"] == -9999.0  # JSON has no infinity


def test_log_probabilities_of_a_completion_with_its_prompt():
    before = [TokenLogprobs(3, None), TokenLogprobs(4, -2.0, ((5, -1.0),))]
    ask = completion(prompt=[3, 4], echo=True, logprobs=2)
    choice = body_of(answer(ask), [result("<7>", prompt_logprobs=before, **SCORED)])["choices"][0]
    assert choice["text"] == "<3><4><7>"
    assert choice["logprobs"]["tokens"] == ["<3>", "<4>", "<7>", "<8>"]
    assert choice["logprobs"]["token_logprobs"] == [None, -2.0, -0.5, -9999.0]
    assert choice["logprobs"]["text_offset"] == [0, 3, 6, 9]
    own = completion(prompt="a", echo=True, logprobs=2)
    choice = body_of(answer(own), [result("<7>", prompt_logprobs=before, **SCORED)])["choices"][0]
    assert choice["text"] == "a<7>"
    assert choice["logprobs"]["text_offset"] == [0, 0, 1, 4], "a token that is added is not shown"
    assert choice["logprobs"]["top_logprobs"][:2] == [None, {"<5>": -1.0, "<4>": -2.0}]


PIECES = {1: b"a", 2: b"\xc3", 3: b"\xa9", 4: b" \xe6\x97", 5: b"a", 6: b"", 7: b"", 8: b"\\xc3"}
NAMES = ["a", "bytes:\\xc3", "bytes:\\xa9", "bytes: \\xe6\\x97", "a", "", "", "\\xc3"]


def test_parts_of_characters_are_given_as_bytes():
    scored = [TokenLogprobs(token, -1.0) for token in PIECES]
    own = answer(completion(logprobs=0))
    own.tokenizer.piece = PIECES.__getitem__
    found = body_of(own, [result("text", logprobs=scored)])["choices"][0]["logprobs"]
    assert found["tokens"] == NAMES
    tokenizer, own = own.tokenizer, answer(chat(logprobs=True))
    own.tokenizer = tokenizer
    content = body_of(own, [result("text", logprobs=scored)])["choices"][0]["logprobs"]["content"]
    assert [bytes(token["bytes"]) for token in content] == [*PIECES.values()]
    assert [token["token"] for token in content] == [n.removeprefix("bytes:") for n in NAMES]


@pytest.mark.parametrize("token", PIECES)
@pytest.mark.parametrize("is_among_them", [True, False])
def test_each_of_the_most_likely_tokens_has_a_key(token, is_among_them):
    others = [each for each in PIECES if is_among_them or each != token]
    top = tuple((each, -place / 2) for place, each in enumerate(others, 1))
    logprob = dict(top).get(token, -9.0)
    own = answer(completion(logprobs=8))
    own.tokenizer.piece = PIECES.__getitem__
    scored = [TokenLogprobs(token, logprob, top)]
    found = body_of(own, [result(logprobs=scored)])["choices"][0]["logprobs"]
    [named] = found["top_logprobs"]
    assert named[found["tokens"][0]] == found["token_logprobs"][0] == logprob
    assert sorted(named.values()) == sorted({**dict(top), token: logprob}.values())
    assert sum(name.startswith("token_id:") for name in named) == 2, "of those with the same text"


def events_of(ask, *pieces):
    stream = answer(ask)
    parts = [*stream.begin(), *(e for piece in pieces for e in stream.add(*piece)), *stream.end()]
    return [part.decode().removesuffix("\n\n") for part in parts]


def last(text=""):
    stats = GenerationStats(5, [round_of(0, 0, 1), round_of(3, 1, 2)])
    return 0, Chunk(text, [3], "plain", finish_reason="stop", stats=stats)


def test_the_usage_of_a_stream_comes_last_with_the_metrics():
    fields = {"stream": True, "stream_options": {"include_usage": True}}
    of_events = {"stream_options": {"continuous_usage_stats": True}}
    told = events_of(completion(stream=True, **of_events), last("i"))
    assert all("usage" not in data_of(event) for event in told[:-1])
    *chunks, usage, _ = events_of(completion(**fields), last("i"))
    assert all(data_of(event)["usage"] is None for event in chunks)
    assert data_of(usage)["choices"] == []
    assert data_of(usage)["usage"]["completion_tokens"] == 3
    assert data_of(usage)["metrics"]["speculative_decoding"]["num_draft_tokens"] == 3


def scored_chunk(text, *offsets, **more):
    logprobs = [TokenLogprobs(7, -0.5, offset=offset) for offset in offsets]
    return Chunk(text, [7] * len(offsets), "plain", logprobs=logprobs, **more)


@pytest.mark.parametrize("echo", [True, False])
def test_a_token_of_a_stream_is_scored_once_the_text_before_it_is_sent(echo):
    # "cd" may be the beginning of a stop string, and "e" ends it.
    before = [TokenLogprobs(3, None), TokenLogprobs(4, -1.0)] if echo else []
    begun = scored_chunk("ab", 0, 1, prompt_logprobs=before)
    held, ended = scored_chunk("", 2, 3), scored_chunk("", 4, finish_reason="stop")
    ask = completion(prompt=[3, 4], stream=True, logprobs=0, echo=echo, n=2)
    own = answer(ask)
    stream = own
    chunks = [*begun.logprobs, *held.logprobs, *ended.logprobs]
    parts = [event for each in (begun, held, ended) for event in stream.add(1, each)]
    events = [data_of(event.decode().strip())["choices"][0] for event in parts]
    start = 6 * echo
    offsets = [event["logprobs"]["text_offset"] for event in events]
    prompt = [0, 3] * echo
    assert offsets == [[*prompt, start, start + 1], [start + 2], [start + 2, start + 2]]
    whole = result("ab", logprobs=chunks, prompt_logprobs=before)
    choice = body_of(own, [whole, whole])["choices"][1]
    assert choice["logprobs"]["text_offset"] == [o for part in offsets for o in part]
    assert choice["text"] == "".join(event["text"] for event in events)


def test_origins_are_told_where_they_are_asked_for():
    for wanted in (True, False):
        ask = chat(stream=True, return_origins=wanted)
        event = data_of(events_of(ask, (0, Chunk("H", [1], "draft")), last())[1])
        assert event["choices"][0].get("origin") == ("draft" if wanted else None)


def test_a_response_is_complete_or_says_why_not():
    body = body_of(answer(responses(metadata={"a": "b"})), [result()])
    assert body["object"] == "response"
    assert (body["status"], body["incomplete_details"]) == ("completed", None)
    assert body["output"][0]["content"][0]["text"] == "Hi"
    assert body["usage"]["input_tokens"] == body["usage"]["output_tokens"] == 5
    assert body["metadata"] == {"a": "b"}
    assert (body["parallel_tool_calls"], body["tool_choice"]) == (True, "auto")
    repeated = {"parallel_tool_calls": False, "tool_choice": "none"}
    assert repeated.items() <= body_of(answer(responses(**repeated)), [result()]).items()
    body = body_of(answer(responses()), [result(finish_reason="length")])
    assert body["status"] == "incomplete"
    assert body["incomplete_details"] == {"reason": "max_output_tokens"}


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (OptionError("x=1 is wrong"), 400, None),
        (ContextLengthError("too long"), 400, "context_length_exceeded"),
        (LogitsError("all forbidden"), 400, None),
        (CacheFullError("full"), 400, "kv_cache_full"),
        (ApiError(429, "later", code="queue_full"), 429, "queue_full"),
    ],
)
def test_errors_of_the_caller_are_told_as_they_are(error, status, code):
    failure = from_exception(error, "r1")
    assert (failure.status, failure.code, failure.message) == (status, code, str(error))
