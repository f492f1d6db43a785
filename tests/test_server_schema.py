"""The server keeps to its own OpenAPI document, whatever it is sent."""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from ov_specdec import SpeculativePipeline
from ov_specdec.openai import ChatBody
from ov_specdec.server.app import make_app
from ov_specdec.server.service import Service
from ov_specdec.server.settings import Settings
from tests.server import NAME, serving

CHECKS = [not_a_server_error, response_schema_conformance, status_code_conformance]


@pytest.fixture(scope="module")
def server(chat_pair):
    main, draft = chat_pair
    with (
        SpeculativePipeline(main, draft, precision="exact", num_threads=1) as pipeline,
        serving(pipeline) as running,
    ):
        yield running


def test_fields_that_change_nothing_are_described_with_the_values_that_do_not():
    described = ChatBody.model_json_schema()["properties"]
    assert described["store"]["enum"] == [False, None]
    assert described["tools"]["enum"] == [[], None]


def operations():
    """Path and method of every operation of the document."""
    paths = make_app(Service(Settings())).openapi()["paths"]
    return [(path, method) for path, methods in paths.items() for method in methods]


@pytest.mark.parametrize(("path", "method"), operations())
def test_no_answer_is_a_failure_or_has_another_shape(server, path, method):
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")

    @given(case=schema[path][method].as_strategy())
    @settings(
        max_examples=25,
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
