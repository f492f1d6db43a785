"""An option that is described in one place is found wherever options are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import click
import pytest
from click.testing import CliRunner

from ov_specdec import GenerationOptions, OptionError
from ov_specdec.cli.declare import options_of as click_options
from ov_specdec.cli.declare import own_options
from ov_specdec.cli.generate import generate
from ov_specdec.cli.terminal import in_option_names
from ov_specdec.description import About, describe
from ov_specdec.openai import ApiError, ChatBody, CompletionBody, ResponsesBody, read_ask
from ov_specdec.openai.batches import BODIES
from ov_specdec.openai.body import read
from ov_specdec.openai.fields import options_of, with_options
from tests.option_tables import kwargs, options_page


@dataclass(frozen=True)
class More(GenerationOptions):
    """All options, and one that nothing else knows of."""

    sparkle: Annotated[
        int, About("How much it sparkles.", low=1, high=9, unit="stars", field="shine")
    ] = 3
    weights: Annotated[Mapping[int, float] | None, About("Weights by token id.")] = None


NAME = "sparkle"


@pytest.mark.parametrize("value", [0, 10, "x", None, True])
def test_it_is_checked(value):
    with pytest.raises(
        OptionError, match=f"{NAME}=.* must be a whole number, from 1 to 9"
    ) as error:
        More(sparkle=value)
    assert (error.value.option, error.value.value) == (NAME, value)
    assert More.from_kwargs({NAME: 4}).sparkle == 4


def test_it_is_an_option_of_the_command_line():
    @click.command()
    @click_options(describe(More))
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


WITH_VALUES = [p for p in generate.params if p.name in describe(More) and not p.is_flag]


@pytest.mark.parametrize("option", WITH_VALUES, ids=lambda option: option.name)
def test_every_option_can_be_typed(option, tmp_path):
    file = tmp_path / "list.json"
    file.write_text("[]")
    choices = getattr(option.type, "choices", ())
    text = choices[0] if choices else TYPED.get(option.metavar, str(file))
    value = option.process_value(click.Context(generate), (text,) if option.multiple else text)
    assert value not in (None, ())


def test_a_command_describes_its_own_options_where_it_takes_them():
    @click.command()
    @own_options
    def command(
        *,
        size: Annotated[int, About("Its size.", low=1)],
        names: Annotated[Sequence[str], About("A name.", flag="name")] = (),
        is_round: Annotated[bool, About("Whether it is round.", flag="round")] = False,
    ):
        click.echo(f"{size} {names} {is_round}")

    def printed(*arguments):
        return CliRunner().invoke(command, arguments)

    given = ("--size", "3", "--name", "a", "--name", "b", "--round")
    assert printed(*given).output == "3 ('a', 'b') True\n"
    assert printed("--size", "3").output == "3 () False\n"
    assert "Missing option '--size'" in printed().output
    assert str(printed("--size", "0").exception) == "size=0 must be a whole number, at least 1"
    assert "--name TEXT A name; repeatable." in " ".join(printed("--help").output.split())


BODY_OF = {
    "chat": (ChatBody, {"messages": [{"role": "user", "content": "x"}]}),
    "completions": (CompletionBody, {"prompt": "x"}),
    "responses": (ResponsesBody, {"input": "x"}),
}


@pytest.mark.parametrize("endpoint", BODY_OF)
def test_it_is_a_field_of_requests_and_of_their_document(endpoint):
    known, needed = BODY_OF[endpoint]
    body = with_options(options_of(endpoint, More))(known)
    assert read(body, {**needed, "shine": 4}).options[NAME] == 4
    with pytest.raises(ApiError) as error:
        read(body, {**needed, "shine": 10})
    assert error.value.param == "shine"
    (described,) = (
        each for each in body.model_json_schema()["properties"]["shine"]["anyOf"] if len(each) > 1
    )
    assert described == {"type": "integer", "minimum": 1, "maximum": 9}


def test_keys_of_a_mapping_are_texts_in_requests():
    body = with_options(options_of("completions", More))(CompletionBody)
    assert read(body, {"prompt": "x", "weights": {"5": 0.5}}).options["weights"] == {5: 0.5}
    with pytest.raises(ApiError, match=r'weights\.a="a" must be a whole number') as error:
        read(body, {"prompt": "x", "weights": {"a": 0.5}})
    assert error.value.param == "weights.a"


def test_files_of_requests_have_the_bodies_of_the_server():
    assert set(BODIES.values()) == {ChatBody, CompletionBody}


def test_it_is_in_the_keyword_arguments_and_in_the_documents():
    assert f"    {NAME}: int\n" in kwargs(More)
    (row,) = (line for line in options_page(More).splitlines() if NAME in line)
    assert row == (
        f"| `{NAME}` | whole number of stars, 1 to 9 | 3 | `--{NAME}` | `shine` | "
        "How much it sparkles. |"
    )


@pytest.mark.parametrize("endpoint", BODY_OF)
def test_every_field_of_an_option_is_read_as_the_option_that_it_describes(endpoint):
    kind, needed = BODY_OF[endpoint]
    for each in options_of(endpoint):
        if each.kinds[0] in (int, float):
            value = 1 if each.default in (None, "auto") else each.default
            assert read_ask(kind, {**needed, each.field: value}).options[each.name] == value
