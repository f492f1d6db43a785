"""The command line: parses options, calls the package, shows what comes back."""

import sys

import click

import ov_specdec
from ov_specdec.cli.bench import bench
from ov_specdec.cli.check import check
from ov_specdec.cli.compare import compare
from ov_specdec.cli.demo import demo
from ov_specdec.cli.devices import devices
from ov_specdec.cli.expand import expand
from ov_specdec.cli.export import export
from ov_specdec.cli.generate import generate
from ov_specdec.cli.terminal import USER_ERROR, fail
from ov_specdec.cli.tune import tune


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(ov_specdec.__version__, prog_name="ov-specdec")
def app() -> None:
    """Exact speculative decoding for OpenVINO."""


for command in (generate, compare, demo, tune, bench, check, export, expand, devices):
    app.add_command(command)


def main() -> None:
    """Run the command line; exit code 2 after an error, with one line on stderr."""
    try:
        sys.exit(app(prog_name="ov-specdec", standalone_mode=False))
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        hint = f" (see {context.command_path} --help)" if context else ""
        fail(f"{error.format_message()}{hint}")
    except (click.Abort, KeyboardInterrupt):
        fail("interrupted: what was not finished is lost; run the command again")
    sys.exit(USER_ERROR)
