"""What to type in place of a command or an option that does not exist."""

from collections.abc import Iterable, Mapping
from itertools import takewhile

import click

from ov_specdec.checks import suggest

COMMANDS = {
    "generate or chat": "complete run",
    "export": "convert download pull",
    "--help": "help",
    "devices MODEL, for one of them": "models",
    "--version": "version",
}
"""What to give, and what other programs call it."""

OPTIONS = {
    "--main": "-m --model --main-model --model-path",
    "--main, with an OpenVINO model's name on the Hub": "-hf",
    "--draft": "-hfd -md --assistant-model --draft-model --model-draft --speculative-config "
    "--speculative-model",
    "--max-new-tokens": "-n --max-length --max-tokens --n-predict --num-predict",
    "--max-model-len": "-c --ctx-size",
    "--prompt-file": "-f --file",
    "the prompt without an option": "-p --prompt",
    "--system": "-sys --system-prompt",
    "--num-threads": "-t -tb --threads",
    "--num-assistant-tokens": "--num-speculative-tokens --draft-max",
    "--device": "-ngl --gpu-layers --n-gpu-layers",
    "--draft-device": "-ngld",
    "--served-model-name": "-a --alias",
    "--max-batch-size": "-np --max-num-seqs --parallel",
    "--max-prefill-tokens-per-step": "--max-num-batched-tokens",
    "--kv-cache-size": "--gpu-memory-utilization",
    "--precision, default or exact": "--dtype",
    "--property, such as KV_CACHE_PRECISION=u8": "-ctk -ctv",
    "--replicas, for more requests at once": "--tensor-parallel-size",
    "--replicas": "--data-parallel-size",
    "--log-level": "--disable-log-requests",
    "--stop": "--stop-strings",
    "--temperature": "--temp",
    "--no-chat-template": "-no-cnv",
    "--no-skip-special-tokens": "-sp",
    "the command chat": "-cnv",
    "the command chat, or --chat-template": "--chat",
    "the command export its --weight-format": "--quantization",
    "nothing: it is always done": "-fa --enable-prefix-caching --enable-chunked-prefill",
    "nothing: the text comes as it is generated": "--stream",
}
"""The same for options."""

HINTS, ELSEWHERE = (
    {name: hint for hint, names in table.items() for name in names.split()}
    for table in (OPTIONS, COMMANDS)
)
"""What to give, by the names of other programs."""

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
    hint = HINTS.get(hyphened)
    if hint is None or (hint.startswith("--") and hint.split(",")[0] not in flags):
        return f"there is no option {name}" + (f": {usual}" if usual else "")
    return f"there is no option {name}: give {hint}"


def refuse_words(context: click.Context, args: Iterable[str]) -> None:
    """Refuse those of others that click would read letter by letter, such as -ngl as -n gl."""
    for arg in takewhile("--".__ne__, args):
        if arg in HINTS and len(arg.lstrip("-")) > 1 and not arg.startswith("--"):
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
    elsewhere = ELSEWHERE.get(name)
    if elsewhere is not None and elsewhere.split()[0] in {*commands, "--help", "--version"}:
        return f"there is no command '{name}': give {elsewhere}"
    hint = suggest(name, commands, f"there are: {', '.join(commands)}")
    return f"there is no command '{name}': {hint}"
