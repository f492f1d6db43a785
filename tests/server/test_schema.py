"""Whatever the server is sent, its answers have the shapes of OpenAI's types, or are errors."""

from functools import cache

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from ollama import ChatResponse, GenerateResponse, ListResponse, ProcessResponse, ShowResponse
from openai.types import Completion
from openai.types.chat import ChatCompletion
from openai.types.responses import Response
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance

from ov_specdec.api.errors import ApiError
from ov_specdec.dialects import DIALECTS, dialect_of
from ov_specdec.server.app import make_app
from ov_specdec.server.service import Service
from ov_specdec.server.settings import Settings
from tests.support.server import NAME

CHECKS = [not_a_server_error, content_type_conformance]
SHAPES = {
    "/v1/chat/completions": ChatCompletion,
    "/v1/completions": Completion,
    "/v1/responses": Response,
    "/api/chat": ChatResponse,
    "/api/generate": GenerateResponse,
    "/api/show": ShowResponse,
    "/api/tags": ListResponse,
    "/api/ps": ProcessResponse,
}


@cache
def document():
    return make_app(Service(Settings())).openapi()


@cache
def schema_of(server):
    return schemathesis.openapi.from_url(f"{server.url}/openapi.json")


def shape(value):
    """The fields of an object and of those in it."""
    return {name: shape(each) for name, each in value.items()} if type(value) is dict else None


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
            assert shape(answer.json()) == shape(dialect_of(path).error(ApiError(0, "")))
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
        operation["requestBody"]["content"]
        for methods in described["paths"].values()
        for operation in methods.values()
        if "requestBody" in operation
    ]
    assert len(contents) == sum(len(dialect.posts) for dialect in DIALECTS)
    assert "ChatBody" in schemas, "no dialect has a body of the same name"
    assert [*contents[0]] == ["application/json"]
    [[form, content]] = described["paths"]["/v1/audio/transcriptions"]["post"]["requestBody"][
        "content"
    ].items()
    assert (form, content["schema"]) == (
        "multipart/form-data",
        {"$ref": "#/components/schemas/TranscriptionForm"},
    )
    assert "file" in schemas["TranscriptionForm"]["required"]
