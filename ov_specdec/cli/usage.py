"""What to type in place of a command or an option that does not exist."""

from collections.abc import Iterable, Mapping
from itertools import takewhile

import click

from ov_specdec.checks import suggest

COMMANDS: Mapping[str, str] = {
    **dict.fromkeys(("complete", "run"), "generate or chat"),
    **dict.fromkeys(("convert", "download", "pull"), "export"),
    "help": "--help",
    "models": "devices MODEL, for one of them",
    "version": "--version",
}
"""By what other programs call them."""

OPTIONS: Mapping[str, str] = {
    **dict.fromkeys(("-m", "--model", "--main-model", "--model-path"), "--main"),
    **dict.fromkeys(("--assistant-model", "--draft-model", "--model-draft"), "--draft"),
    **dict.fromkeys(
        ("-n", "--max-length", "--max-tokens", "--n-predict", "--num-predict"), "--max-new-tokens"
    ),
    **dict.fromkeys(("-c", "--ctx-size"), "--max-model-len"),
    **dict.fromkeys(("-f", "--file"), "--prompt-file"),
    **dict.fromkeys(("-t", "--threads"), "--num-threads"),
    **dict.fromkeys(("--num-speculative-tokens", "--draft-max"), "--num-assistant-tokens"),
    **dict.fromkeys(("--speculative-config", "--speculative-model"), "--draft"),
    **dict.fromkeys(("--gpu-layers", "--n-gpu-layers"), "--device"),
    "--system-prompt": "--system",
    **dict.fromkeys(("-a", "--alias"), "--served-model-name"),
    "--quantization": "the command export its --weight-format",
    **dict.fromkeys(("--max-num-seqs", "--parallel"), "--max-batch-size"),
    "--max-num-batched-tokens": "--max-prefill-tokens-per-step",
    "--gpu-memory-utilization": "--kv-cache-size",
    "--dtype": "--precision, default or exact",
    "--tensor-parallel-size": "--replicas, for more requests at once",
    "--data-parallel-size": "--replicas",
    "--disable-log-requests": "--log-level",
    **dict.fromkeys(
        ("--enable-prefix-caching", "--enable-chunked-prefill"), "nothing: it is always done"
    ),
    "--chat": "the command chat, or --chat-template",
    "--stop-strings": "--stop",
    "--stream": "nothing: the text comes as it is generated",
    "--temp": "--temperature",
    **dict.fromkeys(("-p", "--prompt"), "the prompt without an option"),
    # Several letters behind one hyphen, as llama.cpp has them.
    "-cnv": "the command chat",
    **dict.fromkeys(("-ctk", "-ctv"), "--property, such as KV_CACHE_PRECISION=u8"),
    "-fa": "nothing: it is always done",
    "-hf": "--main, with an OpenVINO model's name on the Hub",
    **dict.fromkeys(("-hfd", "-md"), "--draft"),
    "-ngl": "--device",
    "-ngld": "--draft-device",
    "-no-cnv": "--no-chat-template",
    "-np": "--max-batch-size",
    "-sp": "--no-skip-special-tokens",
    "-sys": "--system",
    "-tb": "--num-threads",
}
"""By what other programs call them: what to give instead."""

CUTOFF = 0.7
"""How much alike options have to be: below it they have little but "--" in common."""


EXTRA = "Got unexpected extra argument"
"""The beginning of click's error for an argument of a command that takes fewer."""


def explain(error: click.ClickException) -> str:
    """The message of an error of click's, with what to type in its place."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return error.format_message() + _where_models_go(error)
    name, command = error.option_name, error.ctx.command
    if isinstance(command, click.Group):
        return f"{name} is no option of {error.ctx.command_path}: give a command before it"
    argument = name.removeprefix("--")
    if any(isinstance(each, click.Argument) and each.name == argument for each in command.params):
        return f"there is no option {name}: give {argument.upper()} without it"
    flags = [
        flag
        for each in command.params
        for flag in (*each.opts, *each.secondary_opts)
        if flag.startswith("--")
    ]
    hyphened = name.replace("_", "-")
    most = 1 if hyphened in flags else 2
    usual = suggest(hyphened, flags, "", most=most, cutoff=CUTOFF)
    hint = OPTIONS.get(hyphened)
    if hint is None or (hint.startswith("--") and hint.split(",")[0] not in flags):
        return f"there is no option {name}" + (f": {usual}" if usual else "")
    return f"there is no option {name}: give {hint}"


def refuse_words(context: click.Context, args: Iterable[str]) -> None:
    """Refuse those of `OPTIONS` that click would read letter by letter, such as -ngl as -n gl."""
    for arg in takewhile("--".__ne__, args):
        if arg in OPTIONS and len(arg.lstrip("-")) > 1 and not arg.startswith("--"):
            raise click.NoSuchOption(arg, ctx=context)


def _where_models_go(error: click.ClickException) -> str:
    """A hint for an argument of a command that takes its models by option alone."""
    context = getattr(error, "ctx", None)
    if context is None or not error.message.startswith(EXTRA):
        return ""
    params = context.command.params
    if any(isinstance(each, click.Argument) for each in params):
        return ""
    return ": give a model with --main" if any("--main" in each.opts for each in params) else ""


def explain_command(name: str, commands: Mapping[str, str]) -> str:
    """What to type in place of a command that does not exist. commands: those that do."""
    elsewhere = COMMANDS.get(name)
    if elsewhere is not None and elsewhere.split()[0] in {*commands, "--help", "--version"}:
        return f"there is no command '{name}': give {elsewhere}"
    hint = suggest(name, commands, f"there are: {', '.join(commands)}")
    return f"there is no command '{name}': {hint}"
