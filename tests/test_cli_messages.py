"""Messages in the words of the command line, escapes in arguments, and addresses."""

import socket

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ov_specdec.checks import require_bool, require_int, require_number
from ov_specdec.cli.address import check_address
from ov_specdec.cli.app import COMMANDS, app
from ov_specdec.cli.escapes import unescape
from ov_specdec.cli.option_names import in_option_names
from ov_specdec.cli.options import GENERATION_NAMES, PIPELINE_NAMES
from ov_specdec.errors import ModelError, OptionError
from ov_specdec.options import GenerationOptions


def command(name):
    return app.get_command(click.Context(app), name)


GENERATE = command("generate").params

IN_PYTHON_ONLY = (
    "logits_processor",  # functions cannot be typed
    *("add_generation_prompt", "continue_final_message"),  # the prompt is the last message
    "cache_salt",  # whoever types is the only one
    "choice",  # a command has one
)

TRANSLATED = {
    "max_new_tokens=-1 must be a whole number": "--max-new-tokens -1 must be a whole number",
    "temperature=1e-05 is": "--temperature 1e-05 is",
    "kv='stateful': leave it out": "--kv stateful: leave it out",
    "give draft=FOLDER, or drafter='none'": "give --draft FOLDER, or --drafter none",
    "main='my model' has": "--main 'my model' has",
    "(top_k=4)": "(--top-k 4)",
    "contradicts do_sample=True: no": "contradicts --do-sample: no",
    "with do_sample=False": "with --no-do-sample",
    "with ignore_eos=True": "with --ignore-eos",
    "apply_chat_template=False": "--no-chat-template",
    "eos_token_id=(3, 4) has": "--eos-token-id 3 --eos-token-id 4 has",
    "stop_strings=('a)', '') must": "--stop 'a)' --stop '' must",
    "stop_strings=('\\n',) must": "--stop '\\n' must",
    "bad_words_ids=() must": "--bad-words-ids '' must",
    "properties={'A': '1', 'B': '2'} has": "--property A=1 --property B=2 has",
    "draft_properties={'A': '1'} has": "--draft-property A=1 has",
    "logit_bias[4]=nan must": "--logit-bias 4=nan must",
    "needs a number in num_assistant_tokens": "needs a number in --num-assistant-tokens",
    "where precision, properties, num_threads or draft_device are given": (
        "where --precision, --property, --num-threads or --draft-device are given"
    ),
    "the main and the draft on one device": "the main and the draft on one device",
    "seeds=1 of my_top_k=2, --seed=3": "seeds=1 of my_top_k=2, --seed=3",
    "logits_processor=4": "logits_processor=4",
    "stop_strings=('unfinished": "--stop ('unfinished",
}


@pytest.mark.parametrize("message", TRANSLATED)
def test_messages_name_the_options_of_the_command_line(message):
    assert in_option_names(OptionError(message), GENERATE) == TRANSLATED[message]


def test_other_commands_have_options_of_their_own():
    message = "repeat=0 must be a whole number, seconds=0"
    assert in_option_names(OptionError(message), command("compare").params).startswith("--repeat 0")
    assert in_option_names(OptionError(message), command("tune").params).endswith(", --seconds 0")
    assert in_option_names(OptionError(message), []) == message


def test_keys_of_a_file_are_no_options():
    message = "config.json gives eos_token_id as 'x': repair it, or kv='stateful'"
    expected = "config.json gives eos_token_id as 'x': repair it, or --kv stateful"
    assert in_option_names(ModelError(message), GENERATE) == expected


@pytest.mark.parametrize("name", [*PIPELINE_NAMES, *GENERATION_NAMES])
def test_every_option_of_the_python_interface_is_translated(name):
    if name in IN_PYTHON_ONLY:
        return
    names = ("chat", "batch", "serve")
    parameters = [*GENERATE, *(p for name in names for p in command(name).params)]
    translated = in_option_names(OptionError(f"{name}=5 must be less"), parameters)
    assert translated.startswith("--")
    assert "=" not in translated


@pytest.mark.parametrize(
    "check",
    [
        lambda: require_int("seed", -1, low=0),
        lambda: require_number("top_p", float("nan"), low=0.0, high=1.0),
        lambda: GenerationOptions(stop_strings=("(", "")),
        lambda: GenerationOptions(eos_token_id=(1,), ignore_eos=True),
        lambda: GenerationOptions(num_assistant_tokens_schedule="constant"),
        lambda: GenerationOptions(num_assistant_tokens=3, num_assistant_tokens_schedule="adaptive"),
    ],
)
def test_real_messages_hold_no_names_of_the_python_interface(check):
    with pytest.raises(OptionError) as error:
        check()
    translated = in_option_names(error.value, GENERATE)
    assert "_" not in translated
    assert "=" not in translated


def test_a_flag_without_an_opposite_is_named():
    with pytest.raises(OptionError) as error:
        require_bool("ignore_eos", None)
    assert in_option_names(error.value, GENERATE).startswith("--ignore-eos")
    assert in_option_names(OptionError("ignore_eos=False"), GENERATE) == "no --ignore-eos"


def test_the_table_of_commands_says_what_the_commands_say():
    for name, line in COMMANDS.items():
        assert command(name).get_short_help_str(limit=200) == line
        assert command(name).name == name


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (r"\n\n", "\n\n"),
        (r"a\tb\r", "a\tb\r"),
        (r"\\n", r"\n"),
        (r"\x41\u00e9\u9c7b", "Aé鱻"),
        (r"\ud83d\ude00", "😀"),
        ("\n鱻", "\n鱻"),
    ],
)
def test_escapes_become_characters(typed, meant):
    assert unescape(typed) == meant


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_can_be_written(text):
    assert unescape(text.replace("\\", r"\\")) == text


@pytest.mark.parametrize(
    ("typed", "complaint"),
    [
        (r"\d", r"\d is no escape; write \\ for a backslash"),
        ("a\\", "\\ is no escape"),
        (r"\x4", r"\x is no escape"),
        (r"\ud83d", "not valid text"),
        ("\udcff", "not valid text; give it as UTF-8"),
    ],
)
def test_other_escapes_are_refused(typed, complaint):
    with pytest.raises(ValueError) as error:
        unescape(typed)
    assert complaint in str(error.value)


@pytest.mark.parametrize(
    ("host", "port", "complaint"),
    [
        ("127.0.0.1", 99999, "port=99999 must be a whole number, from 0 to 65535"),
        ("127.0.0.1", -1, "port=-1 must be a whole number, from 0 to 65535"),
        ("nohost.invalid", None, "--host 'nohost.invalid' is not known (.*): give a name"),
        ("a..b", None, "--host 'a..b' is not known"),
        # Addresses for documentation, which no machine has.
        ("192.0.2.1", None, "nothing can be served on --host '192.0.2.1' (.*): choose"),
        ("192.0.2.1", 7860, "on --host '192.0.2.1' --port 7860 (.*): choose"),
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
