"""What `ov-specdec serve` is told: typed, by the environment, and by a file."""

from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from ov_specdec import SpeculativePipeline
from ov_specdec.cli.serve import serve as command
from tests.server import NAME, serving


@pytest.fixture
def handed(monkeypatch):
    """Runs the command; gives settings and binding that the server is handed, or its output."""

    def run(*arguments, **environment):
        given = []
        monkeypatch.setattr("ov_specdec.server.run.serve", lambda *all_: given.append(all_))
        done = CliRunner().invoke(command, ["--port", "0", *map(str, arguments)], env=environment)
        if not given:
            return SimpleNamespace(output=done.output, code=done.exit_code)
        load, settings, binding, _ = given[0]
        return SimpleNamespace(
            pipeline=load.args[0], settings=settings, binding=binding, output=done.output
        )

    return run


def test_what_is_typed_counts_more_than_the_environment_and_that_more_than_a_file(handed, tmp_path):
    file = tmp_path / "serving.yaml"
    file.write_text("max-queue: 1\nqueue_timeout: 2\nmax-request-tokens: 3\ncors-origin: [a, b]\n")
    environment = {"OV_SPECDEC_QUEUE_TIMEOUT": "20", "OV_SPECDEC_MAX_QUEUE": "10"}
    settings = handed("--config", file, "--max-queue", 100, **environment).settings
    assert (settings.max_queue, settings.queue_timeout) == (100, 20.0)
    assert (settings.max_request_tokens, settings.cors_origins) == (3, ("a", "b"))
    several = {"OV_SPECDEC_API_KEY": "one two", "OV_SPECDEC_SERVED_MODEL_NAME": "mine other"}
    settings = handed(**several, OV_SPECDEC_CORS_ORIGINS="c").settings
    assert (settings.api_keys, settings.cors_origins) == (("one", "two"), ("c",))
    assert (settings.model_name, [*settings.aliases]) == ("mine", ["other"])
    named = handed(OV_SPECDEC_CONFIG=str(file)).settings
    assert named.max_queue == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("max-queu: 1", "'max-queu' is not an option: did you mean max-queue"),
        ("[1]", "must map options to values"),
        ("a: [", "cannot be read"),
        ("max-queue: many", "'many' is not a valid int"),
        ("config: other.yaml", "'config' is not an option"),
        ("api-key: ~", "'api-key' has no value: leave it out"),
        ("api-key:", "'api-key' has no value: leave it out"),
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
    given = handed("--config", file)
    shapes, invariant = given.pipeline["static_shapes"], given.pipeline["batch_invariant"]
    assert (shapes, invariant) == ("none", True)
    assert given.pipeline["properties"] == {"A": "on"}
    settings = given.settings
    assert (settings.model_name, settings.max_queue, settings.strict_fields) == ("1.10", 7, True)
    file.write_text("autoscale: 1:0")
    assert "'--autoscale': '1:0' must be MIN:MAX" in handed("--config", file).output


def test_a_variable_is_named_as_its_option(handed):
    named = {"OV_SPECDEC_PROPERTY": "A=1 B=2", "OV_SPECDEC_DRAFT_PROPERTY": "C=3"}
    given = handed(**named).pipeline
    assert given["properties"] == {"A": "1", "B": "2"}
    assert given["draft_properties"] == {"C": "3"}


def test_limits_that_nobody_gives(handed):
    settings = handed().settings
    assert (settings.max_audio_seconds, settings.max_request_tokens) == (3600, 131_072)


def test_models_are_loaded_as_it_is_told(handed):
    assert handed().pipeline["generation_config"] == "model"
    told = handed("--generation-config", "none", "--max-model-len", 40).pipeline
    assert (told["generation_config"], told["max_model_len"]) == ("none", 40)


def test_a_model_may_have_several_names(handed):
    settings = handed("--served-model-name", "a", "--served-model-name", "b").settings
    assert (settings.model_name, list(settings.aliases)) == ("a", ["b"])


def test_requests_may_call_the_model_by_any_of_its_names(tiny_pair):
    with (
        SpeculativePipeline(tiny_pair[0], drafter="none", num_threads=1) as pipeline,
        serving(pipeline, aliases=["other"]) as server,
    ):
        assert [model["id"] for model in server.http.get("/v1/models").json()["data"]] == [
            NAME,
            "other",
        ]
        assert server.http.get("/v1/models/other").json()["id"] == "other"
        assert server.complete("x", model="other", max_tokens=1)["model"] == NAME
        assert server.post("/v1/completions", prompt="x", model="third").status_code == 404


def test_where_it_listens(handed, tmp_path):
    pem = ("--ssl-certfile", "c.pem", "--ssl-keyfile", "k.pem", "--root-path", "/llm")
    tls = handed(*pem)
    assert (tls.binding.ssl_certfile, tls.binding.ssl_keyfile) == ("c.pem", "k.pem")
    assert tls.binding.root_path == "/llm"
    assert tls.settings.allowed_hosts
    assert "[::1]" in tls.settings.allowed_hosts
    local = handed("--uds", tmp_path / "socket")
    assert (local.binding.uds, local.settings.allowed_hosts) == (str(tmp_path / "socket"), ())
    refused = handed("--replicas", 2, "--uds", tmp_path / "socket")
    assert "--uds has no effect with several replicas" in refused.output


def test_a_chat_template_is_that_of_the_server(tiny_pair, tmp_path, monkeypatch):
    file = tmp_path / "mine.jinja"
    file.write_text("[{{ messages[0].content }}]")
    loads = []
    monkeypatch.setattr("ov_specdec.server.run.serve", lambda load, *_: loads.append(load))
    main, draft = tiny_pair
    models = ("--main", str(main), "--draft", str(draft), "--precision", "exact")
    CliRunner().invoke(command, ["--port", "0", *models, "--chat-template", str(file)])
    with loads[0]() as pipeline, serving(pipeline) as server:
        assert server.http.get("/v1/models").json()["data"][0]["chat_template"]
        ids = server.post("/tokenize", messages=[{"role": "user", "content": "area"}]).json()
        assert server.post("/detokenize", tokens=ids["tokens"]).json()["prompt"] == "[area]"
