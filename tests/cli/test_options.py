"""Options of commands: found wherever options are, in help, and by name in messages."""

import ast
import json
import pickle
import re
import shlex
import socket
from collections.abc import Sequence
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import given as drawn
from hypothesis import strategies as st

import ov_specdec
from ov_specdec import GenerationOptions, errors
from ov_specdec.api.body import read, with_options
from ov_specdec.api.errors import ApiError
from ov_specdec.cli.app import COMMANDS, EXAMPLES, app
from ov_specdec.cli.declare import options_of as click_options
from ov_specdec.cli.declare import own_options, unescape
from ov_specdec.cli.generate import generate
from ov_specdec.cli.options import GENERATION, PIPELINE
from ov_specdec.cli.terminal import MOST_USED, in_option_names
from ov_specdec.errors import ModelError, Option, OptionError
from ov_specdec.openai.requests import ChatBody, CompletionBody, ResponsesBody
from ov_specdec.options.model import kinds_of, option, request_fields
from ov_specdec.server.settings import Binding, check_address


class More(GenerationOptions):
    """All options, and one that nothing else knows of."""

    sparkle: int = option(3, "How much it sparkles.", ge=1, le=9, field="shine")


NAME = "sparkle"


@pytest.mark.parametrize("value", [0, 10, "x", None, True])
def test_it_is_checked(value):
    with pytest.raises(OptionError, match=f"{NAME}=.* must be a whole number from 1 to 9") as error:
        More(sparkle=value)
    assert (error.value.option, error.value.value) == (NAME, value)
    assert More(**{NAME: 4}).sparkle == 4


def test_it_is_an_option_of_the_command_line():
    @click.command()
    @click_options(More.model_fields)
    def command(**given):
        click.echo(given[NAME])

    assert CliRunner().invoke(command, [f"--{NAME}", "4"]).output == "4\n"
    assert CliRunner().invoke(command, []).output == "3\n"
    shown = " ".join(CliRunner().invoke(command, ["--help"]).output.split())
    assert f"--{NAME} N How much it sparkles. [default: 3]" in shown
    with pytest.raises(OptionError) as error:
        More(sparkle=10)
    assert in_option_names(error.value, command.params).startswith(f"--{NAME} 10 must")


TYPED = {
    **{"N": "1", "X": "0.5", "auto|N": "2", "ID": "5", "ID,ID,...": "5,6", "ID=BIAS": "5=1"},
    "JSON": '{"a": 1}',
}
"""Values on the command line, by metavar."""


WITH_VALUES = [p for p in generate.params if p.name in More.model_fields and not p.is_flag]


@pytest.mark.parametrize("parameter", WITH_VALUES, ids=lambda each: each.name)
def test_every_option_can_be_typed(parameter, tmp_path):
    file = tmp_path / "list.json"
    file.write_text("[]")
    choices = getattr(parameter.type, "choices", ())
    text = choices[0] if choices else TYPED.get(parameter.metavar, str(file))
    value = parameter.process_value(
        click.Context(generate), (text,) if parameter.multiple else text
    )
    assert value not in (None, ())


def test_a_command_describes_its_own_options_where_it_takes_them():
    @click.command()
    @own_options
    def command(
        *,
        size: int = option(..., "Its size.", ge=1),
        names: Sequence[str] = option((), "A name.", flag="name"),
        is_round: bool = option(False, "Whether it is round.", flag="round"),
    ):
        click.echo(f"{size} {names} {is_round}")

    def printed(*arguments):
        return CliRunner().invoke(command, arguments)

    given = ("--size", "3", "--name", "a", "--name", "b", "--round")
    assert printed(*given).output == "3 ('a', 'b') True\n"
    assert printed("--size", "3").output == "3 () False\n"
    assert "Missing option '--size'" in printed().output
    assert str(printed("--size", "0").exception) == "size=0 must be a whole number of at least 1"
    assert "--name TEXT A name; repeatable." in " ".join(printed("--help").output.split())


BODY_OF = {
    "chat": (ChatBody, {"messages": [{"role": "user", "content": "x"}]}),
    "completions": (CompletionBody, {"prompt": "x"}),
    "responses": (ResponsesBody, {"input": "x"}),
}


@pytest.mark.parametrize("endpoint", BODY_OF)
def test_it_is_a_field_of_requests_and_of_their_document(endpoint):
    known, needed = BODY_OF[endpoint]
    body = with_options(More, request_fields(More))(known)
    assert body.model_validate({**needed, "shine": 4}).given_options[NAME] == 4
    with pytest.raises(ApiError) as error:
        read(body, {**needed, "shine": 10})
    assert error.value.param == "shine"
    (described,) = (
        each for each in body.model_json_schema()["properties"]["shine"]["anyOf"] if len(each) > 1
    )
    assert described == {"type": "integer", "minimum": 1, "maximum": 9}


@pytest.mark.parametrize("endpoint", BODY_OF)
def test_every_field_of_an_option_is_read_as_the_option_that_it_describes(endpoint):
    kind, needed = BODY_OF[endpoint]
    for name in kind.option_names:
        field, known = kind.fields[name], GenerationOptions.model_fields[name]
        if kinds_of(known.annotation)[0] in (int, float):
            value = 1 if known.default in (None, "auto") else known.default
            assert getattr(read(kind, {**needed, field: value}).options, name) == value


def command(name):
    return app.get_command(click.Context(app), name)


def names_of(options):
    return {flag for each in options for flag in (*each.opts, *each.secondary_opts)}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_short_and_help_all_has_every_option(name):
    short, full = (
        CliRunner().invoke(app, [name, flag], env={"COLUMNS": "80"}).output
        for flag in ("--help", "--help-all")
    )
    assert len(short.splitlines()) <= 60
    examples = re.findall(rf"^  ov-specdec {name}\b", short, re.MULTILINE)
    assert len(examples) == (2 if name == "devices" else 3)
    options = [each for each in command(name).params if isinstance(each, click.Option)]
    listed = " ".join(re.findall(r"^  (-.*?)(?:  |$)", full, re.MULTILINE))
    assert names_of(options) <= set(re.split(r"[ ,/]+", listed))
    required = [each for each in options if each.required or each.name == "max_new_tokens"]
    assert all(f"  {flag} " in short for flag in names_of(required))


@pytest.mark.parametrize("line", EXAMPLES.splitlines())
def test_examples_have_the_options_of_their_commands(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for file in ("report.txt", "keys.txt"):  # that are read with the options
        (tmp_path / file).touch()
    name, *words = shlex.split(line)
    assert command(name).make_context(name, words).params


def test_the_most_used_options_exist():
    known = {each.name for name in COMMANDS for each in command(name).params}
    assert set(MOST_USED) - {""} <= known


GENERATE = command("generate").params

IN_PYTHON_ONLY = (
    "logits_processor",  # functions cannot be typed
    *("add_generation_prompt", "continue_final_message"),  # the prompt is the last message
    "cache_salt",  # whoever types is the only one
    "choice",  # a command has one
    "min_tokens",  # vLLM's, for requests
)

TRANSLATED = {
    ("max_new_tokens", -1): "--max-new-tokens -1",
    ("temperature", 1e-05): "--temperature 1e-05",
    ("kv", "stateful"): "--kv stateful",
    ("main", "my model"): "--main 'my model'",
    ("do_sample", True): "--do-sample",
    ("do_sample", False): "--no-do-sample",
    ("ignore_eos", True): "--ignore-eos",
    ("ignore_eos", False): "no --ignore-eos",
    ("apply_chat_template", False): "--no-chat-template",
    ("batch_invariant", True): "--batch-invariant true",
    ("eos_token_id", (3, 4)): "--eos-token-id 3 --eos-token-id 4",
    ("stop_strings", ("a)", "")): "--stop 'a)' --stop ''",
    ("stop_strings", ("\n",)): "--stop '\\n'",
    ("stop_strings", ("a" * 100,)): f"--stop {'a' * 77}...",
    ("bad_words_ids", ((1, 2), (3,))): "--bad-words-ids 1,2 --bad-words-ids 3",
    ("bad_words_ids", ()): "--bad-words-ids",
    ("suppress_tokens", (1, 2)): "--suppress-tokens 1,2",
    ("seed",): "--seed",
    ("logits_processor", 4): "logits_processor=4",
    ("logits_processor",): "logits_processor",
}


@pytest.mark.parametrize("named", TRANSLATED, ids=str)
def test_messages_name_the_options_of_the_command_line(named):
    error = OptionError("{option} is wrong", option=Option(*named))
    assert in_option_names(error, GENERATE) == f"{TRANSLATED[named]} is wrong"


def test_an_error_is_made_of_its_option_value_and_reason():
    error = OptionError("{top_k} has no effect with {do_sample}", top_k=5, do_sample=False)
    assert (error.option, error.value) == ("top_k", 5)
    assert error.reason == "has no effect with do_sample=False"
    assert str(error) == f"top_k=5 {error.reason}"
    assert pickle.loads(pickle.dumps(error)).value == 5  # noqa: S301
    plain = ModelError("config.json gives eos_token_id as '{eos_token_id}'")
    assert (plain.option, plain.value, plain.reason) == (None, None, str(plain))
    assert in_option_names(plain, GENERATE) == str(plain)


PACKAGE = Path(ov_specdec.__file__).parent


def messages_of(path):
    """The texts of messages in a file's errors, and the options that they are given."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assigned = [each for each in ast.walk(tree) if isinstance(each, ast.Assign | ast.AnnAssign)]
    assigned.sort(key=lambda each: each.lineno)

    def values(node, line):
        """What an expression holds, with what its names were given last before a line."""
        yield from (own for own in ast.walk(node) if isinstance(own, ast.Constant | ast.Dict))
        for name in {own.id for own in ast.walk(node) if isinstance(own, ast.Name)}:
            for each in reversed([each for each in assigned if each.lineno < line]):
                target = each.targets[0] if isinstance(each, ast.Assign) else each.target
                names = [own.id for own in ast.walk(target) if isinstance(own, ast.Name)]
                if name in names and each.value is not None:
                    several = isinstance(each.value, ast.Tuple) and len(names) > 1
                    own = each.value.elts[names.index(name)] if several else each.value
                    yield from values(own, each.lineno)
                    break

    for call in ast.walk(tree):
        name = ast.unparse(call.func) if isinstance(call, ast.Call) else ""
        if hasattr(errors, name) and name.endswith("Error") and call.args:
            found = [
                own.value for own in values(call.args[0], call.lineno) if hasattr(own, "value")
            ]
            given = {keyword.arg for keyword in call.keywords if keyword.arg}
            for keyword in call.keywords:
                for own in () if keyword.arg else values(keyword.value, call.lineno):
                    given |= {
                        key.value for key in getattr(own, "keys", ()) if hasattr(key, "value")
                    }
            yield " ".join(each for each in found if isinstance(each, str)), given


def test_the_messages_of_errors_name_the_options_that_they_are_given():
    found = [each for path in PACKAGE.rglob("*.py") for each in messages_of(path)]
    assert {"kv", "max_model_len"} in [given for _, given in found]
    for text, given in found:
        assert set(re.findall(r"\{(\w+)\}", text)) == given, text


def given(*arguments):
    """What `generate` takes of its arguments."""
    made = command("generate").make_context("generate", ["x", *arguments])
    return {k: v for k, v in made.params.items() if v not in (None, ()) and k in PIPELINE}


def test_options_of_models_become_arguments_of_a_pipeline():
    defaults = {k: v.default for k, v in PIPELINE.items() if v.default is not None}
    assert given() == {k: v for k, v in defaults.items() if k in given()}
    typed = "--property A=1 --property B=2=3 --batch-invariant TRUE --static-shapes 1,8"
    assert given(*typed.split(), "--num-threads", "2", "--kv-cache-size", "0.5") == {
        **given(),
        "properties": {"A": "1", "B": "2=3"},
        "batch_invariant": True,
        "static_shapes": (1, 8),
        "num_threads": 2,
        "kv_cache_size": 0.5,
    }


@pytest.mark.parametrize("name", [*PIPELINE, *GENERATION])
def test_every_option_of_the_python_interface_is_translated(name):
    if name in IN_PYTHON_ONLY:
        return
    names = ("chat", "batch", "serve")
    parameters = [*GENERATE, *(p for name in names for p in command(name).params)]
    translated = in_option_names(
        OptionError("{option} must be less", option=Option(name, 5)), parameters
    )
    assert translated.startswith("--")
    assert "=" not in translated


def test_the_list_of_commands_says_what_the_commands_say():
    for name in COMMANDS:
        assert command(name).get_short_help_str(limit=200) == app.first_line(name)
        assert command(name).name == name


@drawn(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_can_be_written(text):
    assert unescape(text.replace("\\", r"\\")) == text
    plain = text.replace('"', "")
    assert unescape(json.dumps(plain)[1:-1]) == plain


@pytest.mark.parametrize("typed", [r"\d", "a\\", r"\x41", r"\"", "\\鱻", r"\ud83d", "\udcff"])
def test_other_escapes_are_refused(typed):
    with pytest.raises(ValueError):
        unescape(typed)


@pytest.mark.parametrize(
    ("host", "port", "complaint"),
    [
        ("a..b", None, "--host 'a..b' cannot be used"),
        # Addresses for documentation, which no machine has.
        ("192.0.2.1", 7860, "--host '192.0.2.1' --port 7860 cannot be used (.*): choose"),
    ],
)
def test_where_nothing_can_be_served_is_said(host, port, complaint):
    with pytest.raises(OptionError, match=complaint):
        check_address(host, port)


def test_a_port_in_use_is_refused_and_0_is_a_free_one():
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        with pytest.raises(OptionError, match=f"--port {taken} .*: choose another --port"):
            check_address("127.0.0.1", taken)
        assert 0 < check_address("127.0.0.1", 0) != taken
    assert check_address("127.0.0.1", taken) == taken
    assert check_address("localhost", None) is None


def test_an_address_of_ipv6_has_brackets_in_urls_only():
    for host in ("::1", "[::1]"):
        binding = Binding(host=host, port=1)
        assert (binding.host, binding.url) == ("::1", "http://[::1]:1")
