"""Messages in the words of the command line, escapes in arguments, and addresses."""

import json
import pickle
import socket

import click
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from ov_specdec.cli.app import COMMANDS, app
from ov_specdec.cli.declare import unescape
from ov_specdec.cli.models import PIPELINE
from ov_specdec.cli.options import GENERATION
from ov_specdec.cli.terminal import in_option_names
from ov_specdec.errors import ModelError, Option, OptionError
from ov_specdec.server.settings import check_address


def command(name):
    return app.get_command(click.Context(app), name)


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
    error = OptionError(Option(*named), " is wrong")
    assert in_option_names(error, GENERATE) == f"{TRANSLATED[named]} is wrong"


def test_an_error_is_made_of_its_option_value_and_reason():
    error = OptionError(Option("top_k", 5), " has no effect with ", Option("do_sample", False))
    assert (error.option, error.value) == ("top_k", 5)
    assert error.reason == "has no effect with do_sample=False"
    assert str(error) == f"top_k=5 {error.reason}"
    assert pickle.loads(pickle.dumps(error)).value == 5  # noqa: S301
    plain = ModelError("config.json gives eos_token_id as 'x'")
    assert (plain.option, plain.value, plain.reason) == (None, None, str(plain))
    assert in_option_names(plain, GENERATE) == str(plain)


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
    translated = in_option_names(OptionError(Option(name, 5), " must be less"), parameters)
    assert translated.startswith("--")
    assert "=" not in translated


def test_the_table_of_commands_says_what_the_commands_say():
    for name, line in COMMANDS.items():
        assert command(name).get_short_help_str(limit=200) == line
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
