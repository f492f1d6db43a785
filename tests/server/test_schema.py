"""Whatever the server is sent, its answers have the shapes of OpenAI's types, or are errors."""

import io
from functools import cache

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from openai.types import Completion
from openai.types.audio import (
    Transcription,
    TranscriptionVerbose,
    TranslationVerbose,
)
from openai.types.chat import ChatCompletion
from openai.types.responses import Response
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance

from ov_specdec.server.app import make_app
from ov_specdec.server.service import Service
from ov_specdec.server.settings import Settings
from ov_specdec.speech_pipeline import SpeechPipeline
from tests.support.recordings import write_recording
from tests.support.server import NAME, serving
from tests.support.tiny_whisper import RATE, recording

CHECKS = [not_a_server_error, content_type_conformance]
SHAPES = {
    "/v1/chat/completions": ChatCompletion,
    "/v1/completions": Completion,
    "/v1/responses": Response,
}
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
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def check(case):
        if isinstance(case.body, dict):
            case.body.update(model=NAME)
            case.body.pop("echo", None)  # with it, OpenAI's type is narrower than its interface
            if case.body.get("stream") is None and "max_tokens" in case.body:
                case.body["max_tokens"] = 2
        answer = case.call_and_validate(checks=CHECKS, timeout=30)
        if answer.status_code >= 400:
            assert answer.json()["error"].keys() == {"message", "type", "param", "code"}
        elif path in SHAPES and answer.headers["content-type"][0] == "application/json":
            SHAPES[path].model_validate(answer.json())

    check()


def references(schema):
    """Places that a document refers to."""
    if isinstance(schema, dict):
        own = [schema["$ref"]] if isinstance(schema.get("$ref"), str) else []
        return own + [found for each in schema.values() for found in references(each)]
    return [found for each in schema for found in references(each)] if type(schema) is list else []


def test_the_document_describes_all_bodies():
    described = document()
    schemas = described["components"]["schemas"]
    assert set(references(described)) == {f"#/components/schemas/{name}" for name in schemas}
    contents = [
        operation["post"]["requestBody"]["content"]
        for operation in described["paths"].values()
        if "post" in operation
    ]
    assert len(contents) == 7
    assert [*contents[0]] == ["application/json"]
    [[form, content]] = described["paths"]["/v1/audio/transcriptions"]["post"]["requestBody"][
        "content"
    ].items()
    assert (form, content["schema"]) == (
        "multipart/form-data",
        {"$ref": "#/components/schemas/TranscriptionForm"},
    )
    assert "file" in schemas["TranscriptionForm"]["required"]


LOGPROBS = {"max_tokens": 3, "logprobs": 2}
PREDICTION = {"type": "content", "content": "return area"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("chat/completions", {"messages": MESSAGES, "logprobs": True, "top_logprobs": 2}),
        ("chat/completions", {"messages": MESSAGES, "n": 2, "prediction": PREDICTION}),
        ("completions", {"prompt": "def area(", "num_assistant_tokens": 3, "temperature": 0}),
        ("completions", {"prompt": ["a", "b"], **LOGPROBS}),
        ("responses", {"input": "area", "instructions": "x", "metadata": {"a": "b"}}),
        ("responses", {"input": MESSAGES, "max_output_tokens": 3, "temperature": 0}),
    ],
)
def test_answers_with_all_that_they_may_hold_have_openais_shapes(server, path, body):
    short = {"max_tokens": 9} if path != "responses" else {"max_output_tokens": 9}
    answer = server.post(f"/v1/{path}", **{"model": NAME, **short, **body})
    assert answer.status_code == 200
    SHAPES[f"/v1/{path}"].model_validate(answer.json())


@pytest.mark.parametrize(
    ("path", "form", "shape"),
    [
        ("transcriptions", "json", Transcription),
        ("transcriptions", "verbose_json", TranscriptionVerbose),
        ("translations", "verbose_json", TranslationVerbose),
        *(("transcriptions", form, None) for form in ("text", "srt", "vtt")),
    ],
)
def test_transcriptions_have_openais_shapes(speech, path, form, shape):
    fields = {"response_format": form}
    if shape is TranscriptionVerbose:
        fields["timestamp_granularities[]"] = ["word", "segment"]
    file = io.BytesIO()
    write_recording(file, recording(2.0), RATE)
    answer = requests.post(
        f"{speech.url}/v1/audio/{path}",
        data={"response_format": form, "seed": 1, **fields},
        files={"file": ("speech.wav", file.getvalue())},
        timeout=60,
    )
    assert answer.status_code == 200
    if shape is not None:
        made = shape.model_validate(answer.json())
        assert shape is not TranscriptionVerbose or (made.words and made.segments)
