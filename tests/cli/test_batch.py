"""`ov-specdec batch`: files of requests in OpenAI's format, and what becomes of bad lines."""

import json
from codecs import BOM_UTF8
from dataclasses import replace

import pytest

from ov_specdec import OptionError, SpeculativePipeline
from ov_specdec.api.body import UnknownFields
from ov_specdec.api.errors import ApiError
from ov_specdec.cli.batch import BatchRequest, BatchRun, Results, read_requests
from ov_specdec.openai.dialect import OPENAI
from tests.support.command_line import run
from tests.support.passes import note_passes

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


def line(custom_id, url=TEXT, **body):
    """A line of a file of requests; greedy, unless the body says otherwise."""
    fields = {"temperature": 0, "max_tokens": 10, **body}
    request = {"custom_id": custom_id, "method": "POST", "url": url, "body": fields}
    return json.dumps(request).encode() + b"\n"


@pytest.fixture(scope="module")
def serving(tmp_path_factory, tiny_pair):
    with SpeculativePipeline(*tiny_pair, precision="exact", max_batch_size=2) as pipeline:
        yield BatchRun(pipeline, ["tiny"], 2)


def answer(lines, path, serving):
    """Answer lines into a file; what it then holds, and the count."""
    tally = Results(path)
    list(serving.answer(map(BatchRequest.model_validate_json, lines), tally))
    return [json.loads(line) for line in path.read_text().splitlines()], tally


def by_id(results):
    return {result["custom_id"]: result for result in results}


def test_where_a_model_recommends_no_temperature_it_is_1_as_in_the_server(tiny_pair, tmp_path):
    requests, output = tmp_path / "requests.jsonl", tmp_path / "results.jsonl"
    asked = {"prompt": "def f", "seed": 3, "ignore_eos": True}
    heats = {"left out": None, "given": 1.0, "greedy": 0.0}
    requests.write_bytes(b"".join(line(n, **asked, temperature=t) for n, t in heats.items()))
    command = ["batch", requests, "--output", output, "--main", tiny_pair[0]]
    done = run(*command, "--precision", "exact")
    assert done.returncode == 0, done.stderr
    results = [json.loads(each) for each in output.read_text().splitlines()]
    texts = {r["custom_id"]: r["response"]["body"]["choices"][0]["text"] for r in results}
    assert texts["left out"] == texts["given"] != texts["greedy"]


def test_the_command_answers_in_openais_shape(chat_pair, tmp_path):
    requests, output = tmp_path / "requests.jsonl", tmp_path / "results.jsonl"
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [{"role": "user", "content": parts}]
    requests.write_bytes(
        line("chat", CHAT, messages=messages, max_tokens=6, ignore_eos=True)
        + line("text", prompt=["def f", [5, 6]], n=2, seed=3, temperature=1, ignore_eos=True)
        + line("bad", prompt="x", max_tokens=0)
    )
    command = ["batch", requests, "--output", output, "--main", chat_pair[0]]
    command += ["--draft", chat_pair[1], "--precision", "exact", "--served-model-name", "tiny"]
    done = run(*command, "--max-batch-size", 2)
    assert done.returncode == 1, done.stderr  # since one has failed
    assert done.stdout == ""
    failure, summary = done.stderr.splitlines()[-2:]
    assert failure.startswith("first error: custom_id='bad': max_tokens=0 only scores a")
    assert summary.startswith("2 answered, 1 failed, 0 answered before, 46 ")
    results = by_id(map(json.loads, output.read_text().splitlines()))
    assert set(results) == {"chat", "text", "bad"}
    assert len({result["id"] for result in results.values()}) == 3
    for name, result in results.items():
        assert set(result) == {"id", "custom_id", "response", "error"}
        assert result["error"] is None
        assert set(result["response"]) == {"status_code", "request_id", "body"}
        assert result["response"]["status_code"] == (400 if name == "bad" else 200)
    chat, text, bad = (results[n]["response"]["body"] for n in ("chat", "text", "bad"))
    assert (chat["object"], text["object"]) == ("chat.completion", "text_completion")
    assert chat["model"] == "tiny"
    assert chat["usage"]["completion_tokens"] == 6
    assert chat["choices"][0]["message"]["role"] == "assistant"
    assert chat["choices"][0]["finish_reason"] == "length"
    assert [choice["index"] for choice in text["choices"]] == [0, 1, 2, 3]
    assert bad["error"]["param"] == "max_tokens"
    again = run(*command)
    assert again.returncode == 1  # a script that tries again is told so too
    assert again.stderr.splitlines()[-1] == (
        "0 answered, 0 failed, 3 answered before, 1 of them with an error"
    )
    assert len(output.read_text().splitlines()) == 3


def test_each_answer_is_the_one_that_its_prompt_gets_alone(serving, tmp_path):
    prompts = ["def f(x):", "class A:", "import os", "x = 1", "return"]
    lines = [line(prompt, prompt=prompt) for prompt in prompts]
    found, tally = answer(lines, tmp_path / "results", serving)
    options = {"max_new_tokens": 10, "apply_chat_template": False}
    for prompt in prompts:
        alone = serving.pipeline.generate(prompt, **options)
        body = by_id(found)[prompt]["response"]["body"]
        assert body["choices"][0]["text"] == alone.text
        assert body["usage"]["completion_tokens"] == len(alone.token_ids)
    assert (tally.answered, tally.failed, tally.skipped) == (5, 0, 0)
    assert tally.tokens == sum(r["response"]["body"]["usage"]["completion_tokens"] for r in found)


def test_a_file_is_read_and_its_results_written_as_requests_are_answered(serving, tmp_path):
    taken = 0

    def lines():
        nonlocal taken
        for taken in range(1, 41):
            text = line(str(taken), prompt="ab", max_tokens=2, ignore_eos=True)
            yield BatchRequest.model_validate_json(text)

    path = tmp_path / "results"
    results = Results(path)
    steps = serving.answer(lines(), results)
    ahead = [taken - path.read_bytes().count(b"\n") for _ in steps]
    assert max(ahead) <= 4  # twice what runs at a time
    assert results.answered == taken == 40


BAD_LINES = {
    b"no JSON\n": "Invalid JSON",
    b"\xff\n": "Invalid JSON",
    b"[" * 100_000 + b"\n": "Invalid JSON",
    b"[1]\n": "must be a JSON object",
    b"{}\n": "custom_id is missing",
    b'{"custom_id": 5}\n': "custom_id=5 must be a text",
    line("x").replace(b"POST", b"GET"): "method=",
    line("x", "/v1/embeddings"): "url=",
    line("x").replace(b'"method"', b'"more": 1, "method"'): "more=1 is not a field of a request",
    line("same", prompt="x"): "repeats custom_id='same'",
}


@pytest.mark.parametrize(("bad", "words"), BAD_LINES.items(), ids=BAD_LINES.values())
def test_a_file_with_a_bad_line_is_refused(bad, words, tmp_path):
    file = tmp_path / "requests.jsonl"
    lines = [line("same", prompt="ab"), bad, line("last", prompt="ab")]
    file.write_bytes(BOM_UTF8 + b"\n".join(lines))
    with pytest.raises(OptionError) as refused:
        list(read_requests(file))
    assert f"line 3 of '{file}'" in str(refused.value) and words in str(refused.value)


FIELD = "structured_outputs.json"
UNKNOWN = {"type": "wrong"}
BAD_BODIES = {
    "field": ({"prompt": "x", "temperatur": 1}, 400, "temperatur"),
    "value": ({"prompt": "x", "top_p": 2}, 400, "top_p"),
    "stream": ({"prompt": "x", "stream": True}, 400, "stream"),
    "model": ({"prompt": "x", "model": "other"}, 404, "model"),
    "length": ({"prompt": "x " * 10_000}, 400, None),
    "grammar": ({"prompt": "x", "structured_outputs": {"json": UNKNOWN}}, 400, FIELD),
}


def test_an_answer_fits_its_schema(serving, tmp_path):
    asked = line("x", prompt="ab", structured_outputs={"json": {"enum": ["yes", 17]}})
    found, _ = answer([asked], tmp_path / "results", serving)
    [choice] = by_id(found)["x"]["response"]["body"]["choices"]
    assert json.loads(choice["text"]) in ("yes", 17) and choice["finish_reason"] == "stop"


def test_bad_bodies_have_the_answers_of_a_server(serving, tmp_path):
    lines = [line(name, **body) for name, (body, _, _) in BAD_BODIES.items()]
    strict = replace(serving, unknown=UnknownFields(strict=True))
    found, tally = answer([*lines, line("good", prompt="ab")], tmp_path / "results", strict)
    results = by_id(found)
    for name, (_, status, param) in BAD_BODIES.items():
        response = results[name]["response"]
        assert (response["status_code"], response["body"]["error"]["param"]) == (status, param)
    assert results["good"]["response"]["status_code"] == 200
    assert (tally.answered, tally.failed) == (1, len(BAD_BODIES))


def test_a_request_without_a_prompt_is_refused(serving, tmp_path):
    greedy = {"num_predict": 3, "temperature": 0}
    asked = {"url": "/api/generate", "options": greedy}  # Ollama's, which takes none
    lines = [line("none", **asked), line("some", prompt="ab", **asked)]
    results = by_id(answer(lines, tmp_path / "results", serving)[0])
    bodies = [results[name]["response"]["body"] for name in ("none", "some")]
    assert (bodies[0], bodies[1]["eval_count"]) == (
        {"error": "the request has no prompt: give one"},
        3,
    )


def test_what_fails_while_it_runs_is_that_requests_error(serving, tmp_path, monkeypatch):
    tokenizer = serving.pipeline.tokenizer
    piece_after = tokenizer.piece_after

    def fails(before, token):
        if 7 in (before, token):
            raise ZeroDivisionError("on purpose")
        return piece_after(before, token)

    monkeypatch.setattr(tokenizer, "piece_after", fails)
    lines = [
        line("bad", prompt=[5, 7], n=2, seed=1),
        line("good", prompt=[5, 6], logit_bias={7: -100}),
    ]
    found, tally = answer(lines, tmp_path / "results", serving)
    response = by_id(found)["bad"]["response"]
    assert response["status_code"] == 500
    assert "ZeroDivisionError: on purpose" in response["body"]["error"]["message"]
    assert by_id(found)["good"]["response"]["status_code"] == 200
    assert (tally.answered, tally.failed) == (1, 1)


def test_the_other_choices_of_a_request_that_fails_end_with_it(serving, tmp_path, monkeypatch):
    passes = note_passes(serving.pipeline.main.runner, monkeypatch)
    bad = {"prompt": [[5, 6], [10**6]], "max_tokens": 100, "ignore_eos": True}
    plain = {"num_assistant_tokens": 0}  # or passes would be timed first
    lines = [line("bad", **bad, **plain), line("good", prompt="ab", **plain)]
    found, tally = answer(lines, tmp_path / "results", serving)
    assert (tally.answered, tally.failed) == (1, 1)
    assert [result["custom_id"] for result in found] == ["bad", "good"]
    assert 0 < len(passes) < 50


def test_an_interrupted_run_is_gone_on_with(serving, tmp_path):
    path = tmp_path / "results"
    lines = [line(str(number), prompt="ab") for number in range(6)]

    results = Results(path)
    for _ in serving.answer(map(BatchRequest.model_validate_json, lines), results):
        if results.answered >= 3:
            break
    before = results.answered
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"id": "batch_req_1", "custom_id": "tor')
    found, tally = answer(lines, path, serving)
    assert path.read_bytes().startswith(whole)
    assert (tally.answered, tally.skipped) == (6 - before, before)
    assert sorted(result["custom_id"] for result in found) == list("012345")


@pytest.mark.parametrize(
    "content",
    [
        *("{}\n", "no end", line("a", prompt="x").decode()),
        '{"custom_id": "b", "response": {"body": "text"}}\n',
        '{ "custom_id": "b", "response": {"body": {}}, "error": null }',
    ],
)
def test_a_file_that_holds_no_results_is_left_alone(content, tmp_path):
    path = tmp_path / "notes.txt"
    Results(path).fail("a", OPENAI, ApiError(400, "no"))
    with path.open("a") as file:
        file.write(content)
    before = path.read_bytes()
    with pytest.raises(OptionError, match=r"line 2 .* is not a result of a batch"):
        Results(path)
    assert path.read_bytes() == before


def test_files_that_cannot_be_used_are_refused_before_models_are_loaded(tmp_path):
    requests = tmp_path / "requests.jsonl"
    requests.write_bytes(line("a", prompt="x"))
    missing = run("batch", tmp_path / "nowhere", "--output", tmp_path / "results")
    assert f"'{tmp_path / 'nowhere'}' cannot be used (No such file" in missing.stderr
    same = run("batch", requests, "--output", requests)
    assert "is the file of requests: give another file" in same.stderr
    no_folder = run("batch", requests, "--output", tmp_path / "no" / "results")
    assert "cannot be used (No such file or directory)" in no_folder.stderr
    assert all(done.returncode == 2 for done in (missing, same, no_folder))
    assert requests.read_bytes() == line("a", prompt="x")
