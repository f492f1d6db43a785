"""Whatever the server is sent, its answers have the shapes of OpenAI's types, or are errors."""

import json
from functools import cache
from itertools import product

import pytest
import schemathesis
from anthropic.types import Message, MessageTokensCount
from hypothesis import HealthCheck, Phase, given, settings
from ollama import ChatResponse, GenerateResponse, ListResponse, ProcessResponse, ShowResponse
from openai.types import Completion
from openai.types.chat import ChatCompletion
from openai.types.responses import Response
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance

from ov_specdec.api.body import Form, read
from ov_specdec.api.errors import ApiError
from ov_specdec.dialects import DIALECTS, dialect_of
from ov_specdec.server.app import make_app
from ov_specdec.server.service import Service
from ov_specdec.server.settings import Settings
from tests.support.server import NAME

CHECKS = [not_a_server_error, content_type_conformance]
JSON = {"content-type": "application/json"}
SHAPES = {
    "/v1/chat/completions": ChatCompletion,
    "/v1/completions": Completion,
    "/v1/responses": Response,
    "/api/chat": ChatResponse,
    "/api/generate": GenerateResponse,
    "/api/show": ShowResponse,
    "/api/tags": ListResponse,
    "/api/ps": ProcessResponse,
    "/v1/messages": Message,
    "/v1/messages/count_tokens": MessageTokensCount,
}


GIVEN = {
    "messages": [{"role": "user", "content": "Hello"}],
    **{"prompt": "Hello", "input": "Hello", "tokens": [1]},
    **{"max_tokens": 1, "max_output_tokens": 1, "options": {"num_predict": 1}},
}
"""What bodies need, and what makes answers short."""

WRONG = (
    *(True, -1, 0, 1, 2**70, -1e308, "", "a", "\ud800", "ab" * 5_000),
    *([], [None], [[]], [1, "a"], ["a"], [{}], {}, {"type": "a"}, {"type": []}, {"a": {"b": [-1]}}),
)


def assert_is_an_error(path, body):
    """In the form of the dialect of the path."""
    dialect = dialect_of(path)
    assert shape(body) == shape(dialect.error(ApiError(400, "a", "b", "c")))


def shape(value):
    """The names of fields, at all depths."""
    return {k: shape(v) for k, v in value.items()} if isinstance(value, dict) else None


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
            assert_is_an_error(path, answer.json())
        elif path in SHAPES and answer.headers["content-type"][0] == "application/json":
            SHAPES[path].model_validate(answer.json())

    check()


POSTS = {path: post for dialect in DIALECTS for path, post in dialect.posts.items()}
BODIES = {
    path: kind
    for path, post in POSTS.items()
    if not issubclass(kind := getattr(post, "body", post), Form)
}


def error_of(kind, body):
    """Why a body is refused, before it is sent."""
    try:
        read(kind, body)
    except ApiError as error:
        return error
    return None


@pytest.mark.parametrize("path", BODIES)
def test_a_field_of_another_kind_is_an_error_of_its_dialect(server, path):
    kind, taken = BODIES[path], 0
    names = {field.alias or name for name, field in kind.model_fields.items()}
    body = {name: value for name, value in GIVEN.items() if name in names}
    for name, value in product(sorted({*names, *kind.neutral_values}), WRONG):
        if error := error_of(kind, {**body, name: value}):
            assert error.status == 400
            assert_is_an_error(path, dialect_of(path).error(error))
        else:
            taken += 1
            answer = server.http.post(path, content=json.dumps({**body, name: value}), headers=JSON)
            assert answer.status_code < 500, (name, value, answer.text)
            if answer.status_code >= 400:
                assert_is_an_error(path, answer.json())
    assert taken > 0 or error_of(kind, body)  # some paths only say that a model is chosen


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
    assert len(contents) == len(POSTS)
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
