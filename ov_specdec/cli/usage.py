"""What to type in place of a command or an option that does not exist."""

from collections.abc import Mapping

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
    **dict.fromkeys(("-n", "--max-length", "--max-tokens", "--n-predict"), "--max-new-tokens"),
    **dict.fromkeys(("-c", "--ctx-size"), "--max-model-len"),
    **dict.fromkeys(("-f", "--file"), "--prompt-file"),
    **dict.fromkeys(("-t", "--threads"), "--num-threads"),
    **dict.fromkeys(("--num-speculative-tokens", "--draft-max"), "--num-assistant-tokens"),
    "--chat": "the command chat, or --chat-template",
    "--stop-strings": "--stop",
    "--stream": "nothing: the text comes as it is generated",
    "--temp": "--temperature",
    **dict.fromkeys(("-p", "--prompt"), "the prompt without an option"),
}
"""By what other programs call them: what to give instead."""

CUTOFF = 0.7
"""How much alike options have to be: below it they have little but "--" in common."""


def explain(error: click.ClickException) -> str:
    """An error of click's, with the way to mend it."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return error.format_message()
    name, command = error.option_name, error.ctx.command
    if isinstance(command, click.Group):
        return f"{name} is no option of {error.ctx.command_path}: give a command before it"
    argument = name.removeprefix("--")
    if any(isinstance(each, click.Argument) and each.name == argument for each in command.params):
        return f"there is no option {name}: give {argument.upper()} without it"
    flags = [flag for each in command.params for flag in each.opts if flag.startswith("--")]
    usual = suggest(name, flags, "", most=2, cutoff=CUTOFF)
    hint = OPTIONS.get(name)
    if hint is None or (hint.startswith("--") and hint not in flags):
        return f"there is no option {name}" + (f": {usual}" if usual else "")
    return f"there is no option {name}: give {hint}"


def explain_command(name: str, commands: Mapping[str, str]) -> str:
    """What to type in place of a command that does not exist. commands: those that do."""
    elsewhere = COMMANDS.get(name)
    if elsewhere is not None and elsewhere.split()[0] in {*commands, "--help", "--version"}:
        return f"there is no command '{name}': give {elsewhere}"
    hint = suggest(name, commands, f"there are: {', '.join(commands)}")
    return f"there is no command '{name}': {hint}"
