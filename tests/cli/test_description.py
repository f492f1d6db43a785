"""An option that is described in one place is found wherever options are."""

from collections.abc import Sequence

import click
import pytest
from click.testing import CliRunner

from ov_specdec import GenerationOptions, OptionError
from ov_specdec.cli.declare import options_of as click_options
from ov_specdec.cli.declare import own_options
from ov_specdec.cli.generate import generate
from ov_specdec.cli.terminal import in_option_names
from ov_specdec.openai.body import read, with_options
from ov_specdec.openai.errors import ApiError
from ov_specdec.openai.requests import ChatBody, CompletionBody, ResponsesBody, read_ask
from ov_specdec.options.model import kinds_of, option, request_fields
from tests.docs.option_tables import kwargs, options_page


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
    body = with_options(More, request_fields(More, endpoint))(known)
    assert read(body, {**needed, "shine": 4}).options[NAME] == 4
    with pytest.raises(ApiError) as error:
        read(body, {**needed, "shine": 10})
    assert error.value.param == "shine"
    (described,) = (
        each for each in body.model_json_schema()["properties"]["shine"]["anyOf"] if len(each) > 1
    )
    assert described == {"type": "integer", "minimum": 1, "maximum": 9}


def test_it_is_in_the_keyword_arguments_and_in_the_documents():
    assert f"    {NAME}: int\n" in kwargs(More)
    (row,) = (line for line in options_page(More).splitlines() if NAME in line)
    assert row == (
        f"| `{NAME}` | a whole number from 1 to 9 | 3 | `--{NAME}` | `shine` | "
        "How much it sparkles. |"
    )


@pytest.mark.parametrize("endpoint", BODY_OF)
def test_every_field_of_an_option_is_read_as_the_option_that_it_describes(endpoint):
    kind, needed = BODY_OF[endpoint]
    for name, field in request_fields(GenerationOptions, endpoint).items():
        known = GenerationOptions.model_fields[name]
        if kinds_of(known.annotation)[0] in (int, float):
            value = 1 if known.default in (None, "auto") else known.default
            assert getattr(read_ask(kind, {**needed, field: value}).options, name) == value
