"""The server keeps to its own OpenAPI document, whatever it is sent."""

import io
from functools import cache

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from pydantic.json_schema import models_json_schema
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from ov_specdec.server.app import make_app
from ov_specdec.server.document import OPERATIONS
from ov_specdec.server.service import Service
from ov_specdec.server.settings import Settings
from ov_specdec.speech_pipeline import SpeechPipeline
from tests.support.recordings import write_recording
from tests.support.server import NAME, serving
from tests.support.tiny_whisper import RATE, recording

CHECKS = [
    not_a_server_error,
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
]
MESSAGES = [{"role": "user", "content": "area"}]


@pytest.fixture(scope="module")
def speech(whisper):
    with (
        SpeechPipeline(whisper.main, whisper.draft, precision="exact", num_threads=1) as pipeline,
        serving(pipeline) as running,
    ):
        yield running


@cache
def document():
    return make_app(Service(Settings())).openapi()


@cache
def schema_of(server):
    return schemathesis.openapi.from_url(f"{server.url}/openapi.json")


def operations():
    """Path and method of every operation of the document."""
    return [(path, method) for path, methods in document()["paths"].items() for method in methods]


@pytest.mark.parametrize(("path", "method"), operations())
def test_no_answer_is_a_failure_or_has_another_shape(server, path, method):
    schema = schema_of(server)

    @given(case=schema[path][method].as_strategy())
    @settings(
        max_examples=10,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def check(case):
        if isinstance(case.body, dict):
            case.body.update(model=NAME)
            if case.body.get("stream") is None and "max_tokens" in case.body:
                case.body["max_tokens"] = 2
        case.call_and_validate(checks=CHECKS, timeout=30)

    check()


def references(schema):
    """Places that a document refers to."""
    if isinstance(schema, dict):
        own = [schema["$ref"]] if isinstance(schema.get("$ref"), str) else []
        return own + [found for each in schema.values() for found in references(each)]
    return [found for each in schema for found in references(each)] if type(schema) is list else []


def test_whatever_the_document_refers_to_is_in_it():
    described = document()
    defined = {f"#/components/schemas/{name}" for name in described["components"]["schemas"]}
    assert set(references(described)) == defined
    bodies = [(each.body, "validation") for each in OPERATIONS.values()]
    answers = [
        (each, "serialization") for one in OPERATIONS.values() for each in (one.answer, *one.events)
    ]
    of_requests, of_answers = (models_json_schema(each)[1]["$defs"] for each in (bodies, answers))
    assert not of_requests.keys() & of_answers.keys()  # no name has two meanings


LOGPROBS = {"max_tokens": 3, "logprobs": 2}
PREDICTION = {"type": "content", "content": "return area"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("chat/completions", {"messages": MESSAGES, "logprobs": True, "top_logprobs": 2}),
        ("chat/completions", {"messages": MESSAGES, "n": 2, "prediction": PREDICTION}),
        ("chat/completions", {"messages": MESSAGES, "stream": True}),
        ("completions", {"prompt": "def area(", "num_assistant_tokens": 3, "temperature": 0}),
        ("completions", {"prompt": ["a", "b"], "echo": True, **LOGPROBS}),
        ("completions", {"prompt": "a", "stream": True}),
        ("responses", {"input": "area", "instructions": "x", "metadata": {"a": "b"}}),
        ("responses", {"input": MESSAGES, "max_output_tokens": 3, "temperature": 0}),
        ("responses", {"input": "area", "stream": True}),
    ],
)
def test_answers_with_all_that_they_may_hold_are_as_described(server, path, body):
    schema = schema_of(server)
    short = {"max_tokens": 9} if path != "responses" else {"max_output_tokens": 9}
    case = schema[f"/v1/{path}"]["post"].Case(
        body={"model": NAME, **short, **body}, media_type="application/json"
    )
    assert case.call_and_validate(checks=CHECKS).status_code == 200


WORDS = {"timestamp_granularities[]": ["word", "segment"]}


@pytest.mark.parametrize(
    ("path", "form", "fields"),
    [
        *(("transcriptions", form, {}) for form in ("json", "text", "srt", "vtt")),
        ("translations", "verbose_json", {}),
        ("transcriptions", "verbose_json", WORDS),
    ],
)
def test_transcriptions_are_as_described(speech, path, form, fields):
    file = io.BytesIO()
    write_recording(file, recording(2.0), RATE)
    operation = schema_of(speech)[f"/v1/audio/{path}"]["post"]
    answer = requests.post(
        f"{speech.url}/v1/audio/{path}",
        data={"response_format": form, "seed": 1, **fields},
        files={"file": ("speech.wav", file.getvalue())},
        timeout=60,
    )
    assert answer.status_code == 200
    operation.validate_response(answer)
    assert fields == {} or (answer.json()["words"] and answer.json()["segments"])
