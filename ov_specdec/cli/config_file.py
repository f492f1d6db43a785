"""Options of a command from a YAML file: `--config`."""

from pathlib import Path

import click

from ov_specdec.options.checks import suggest

EMPTY = ("", "~", "null")
"""How YAML writes no value."""


def _read(context: click.Context, _: click.Parameter, file: Path | None) -> None:
    """Take the values of a file as defaults of options."""
    import yaml

    if file is None:
        return
    try:
        # Values stay texts, as if typed: YAML would read 1:4 as 64, and 1.10 as 1.1.
        content = yaml.load(file.read_text(encoding="utf-8"), yaml.BaseLoader) or {}  # noqa: S506
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise click.BadParameter(f"'{file}' cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise click.BadParameter(f"'{file}' must map options to values")
    flags = {
        flag.removeprefix("--"): option
        for option in context.command.params
        if isinstance(option, click.Option) and option.expose_value
        for flag in option.opts
    }
    context.default_map = {}
    for key, value in content.items():
        typed = str(key).replace("_", "-")  # max-queue or max_queue
        if value in EMPTY:
            raise click.BadParameter(f"'{key}' has no value: leave it out")
        if typed not in flags:
            hint = suggest(typed, flags, "leave it out")
            raise click.BadParameter(f"'{key}' is not an option: {hint}")
        is_one = flags[typed].multiple and isinstance(value, str)
        context.default_map[str(flags[typed].name)] = [value] if is_one else value


CONFIG_OPTION = click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    is_eager=True,
    expose_value=False,
    callback=_read,
    help="Read options from a YAML file, such as max-queue: 64. The command line and environment "
    "variables such as OV_SPECDEC_MAX_QUEUE take precedence.",
)
"""Only for commands whose context settings have a prefix of environment variables."""
