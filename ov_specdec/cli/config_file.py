"""Options of a command from a YAML file: `--config`."""

from pathlib import Path

import click

from ov_specdec.checks import suggest


def _read(context: click.Context, parameter: click.Parameter, file: Path | None) -> None:
    """Take the values of a file as defaults of options."""
    import yaml

    if file is None:
        return
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise click.BadParameter(f"'{file}' cannot be read: {error}", context, parameter) from error
    if not isinstance(content, dict):
        raise click.BadParameter(f"'{file}' must map options to values", context, parameter)
    context.default_map = {
        _name(str(key), context, parameter): value for key, value in content.items()
    }


def _name(key: str, context: click.Context, config: click.Parameter) -> str:
    """The parameter of an option, such as max-queue or max_queue."""
    flags = {
        flag.removeprefix("--"): str(parameter.name)
        for parameter in context.command.params
        if parameter is not config
        for flag in parameter.opts
    }
    option = key.replace("_", "-")
    if option not in flags:
        hint = suggest(option, flags, "leave it out")
        raise click.BadParameter(f"'{key}' is not an option: {hint}", context, config)
    return flags[option]


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
