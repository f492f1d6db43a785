"""What `ov-specdec serve` is told: typed, by the environment, and by a file."""

from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from ov_specdec import SpeculativePipeline
from ov_specdec.cli.serve import serve as command
from ov_specdec.options.generation import GenerationOptions
from tests.support.server import NAME, serving


@pytest.fixture
def handed(monkeypatch):
    """Runs the command; gives settings and binding that the server is handed, or its output."""

    def run(*arguments, port=0, **environment):
        given = []
        monkeypatch.setattr("ov_specdec.server.run.serve", lambda *all_: given.append(all_))
        own = [] if port is None else ["--port", str(port)]
        done = CliRunner().invoke(command, [*own, *map(str, arguments)], env=environment)
        if not given:
            return SimpleNamespace(output=done.output, code=done.exit_code)
        load, settings, binding, _ = given[0]
        return SimpleNamespace(
            pipeline=load.args[0], settings=settings, binding=binding, output=done.output
        )

    return run


def test_what_is_typed_wins_over_the_environment_and_that_over_a_file(handed, tmp_path):
    file = tmp_path / "serving.yaml"
    file.write_text(
        "max-queue: 1\nqueue_timeout: 2\nmax-request-tokens: 3\ncors-origin: [a, b]\n", "utf-8-sig"
    )
    environment = {"OV_SPECDEC_QUEUE_TIMEOUT": "20", "OV_SPECDEC_MAX_QUEUE": "10"}
    settings = handed("--config", file, "--max-queue", 100, **environment).settings
    assert (settings.max_queue, settings.queue_timeout) == (100, 20.0)
    assert (settings.max_request_tokens, settings.cors_origins) == (3, ("a", "b"))
    several = {"OV_SPECDEC_API_KEY": "one two", "OV_SPECDEC_SERVED_MODEL_NAME": "mine other"}
    settings = handed(**several, OV_SPECDEC_CORS_ORIGINS="c").settings
    assert (settings.api_keys, settings.cors_origins) == (("one", "two"), ("c",))
    assert settings.served_model_name == ("mine", "other")
    named = handed(OV_SPECDEC_CONFIG=str(file)).settings
    assert named.max_queue == 1


def test_ollamas_port_is_that_unless_another_is_given(handed, monkeypatch):
    assert handed("--ollama").binding.port not in (0, 11434), "a free one is asked for"
    monkeypatch.setattr("ov_specdec.cli.serve.check_address", lambda _, port: port)
    for typed, port in (((), 8000), (("--ollama",), 11434)):
        assert handed(*typed, port=None).binding.port == port


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("max-queu: 1", "'max-queu' is not an option: did you mean max-queue"),
        ("[1]", "must map options to values"),
        ("max-queue: many", "'many' is not a valid int"),
        ("api-key:", "API key 1 is empty"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(handed, tmp_path, content, words):
    file = tmp_path / "serving.yaml"
    if content is not None:
        file.write_text(content)
    refused = handed("--config", file)
    assert refused.code == 2
    assert words in " ".join(refused.output.split())


def test_a_file_says_what_would_be_typed(handed, tmp_path):
    file = tmp_path / "serving.yaml"
    told = {"batch-invariant": "true", "static-shapes": "none", "max-queue": "07"}
    lines = [*(f"{name}: {value}" for name, value in told.items()), "property: A=on"]
    file.write_text("\n".join([*lines, "served-model-name: 1.10", "strict-fields: yes"]))
    given = handed("--config", file, "--max-model-len", 40, "--chat-template", "x.jinja")
    kept = ("generation_config", "max_model_len", "chat_template")
    assert [str(given.pipeline[name]) for name in kept] == ["model", "40", "x.jinja"]
    shapes, invariant = given.pipeline["static_shapes"], given.pipeline["batch_invariant"]
    assert (shapes, invariant) == ("none", True)
    assert given.pipeline["properties"] == {"A": "on"}
    settings = given.settings
    assert (settings.model_name, settings.max_queue, settings.strict_fields) == ("1.10", 7, True)
    file.write_text("autoscale: 1:0")
    assert "'--autoscale': '1:0' must be MIN:MAX" in handed("--config", file).output


def test_the_length_of_an_answer_has_one_default(handed, tiny_pair):
    assert handed().settings.default_max_tokens is GenerationOptions().max_new_tokens is None
    assert handed("--default-max-tokens", 7).settings.default_max_tokens == 7
    assert "--default-max-tokens 0 must be" in handed("--default-max-tokens", 0).output
    with (
        SpeculativePipeline(tiny_pair[0], drafter="none", max_model_len=40) as pipeline,
        serving(pipeline) as usual,
        serving(pipeline, default_max_tokens=7) as bounded,
    ):
        fields = {"prompt": [5] * 10, "ignore_eos": True}
        lengths = [each.complete(**fields)["usage"] for each in (usual, bounded)]
        assert bounded.complete(**fields, max_tokens=9)["usage"]["completion_tokens"] == 9
        said = [each.service.engine.defaults for each in (usual, bounded)]
    assert [usage["completion_tokens"] for usage in lengths] == [30, 7]
    assert said == ["temperature=1.0", "max_new_tokens=7, temperature=1.0"]


def test_requests_may_call_the_model_by_any_of_its_names(tiny_pair):
    with (
        SpeculativePipeline(tiny_pair[0], drafter="none", num_threads=1) as pipeline,
        serving(pipeline, served_model_name=[NAME, "other"]) as server,
    ):
        assert [model["id"] for model in server.http.get("/v1/models").json()["data"]] == [
            NAME,
            "other",
        ]
        assert server.http.get("/v1/models/other").json()["id"] == "other"
        assert server.complete("x", model="other", max_tokens=1)["model"] == NAME
        assert server.post("/v1/completions", prompt="x", model="third").status_code == 404
