"""The command line: parses options, calls the package, and prints results."""

import sys


def main() -> None:
    """Run the command line; one line on stderr and exit code 2 after an error, 130 after Ctrl-C."""
    try:
        # Imported here, so that Ctrl-C meanwhile ends in one line too.
        from ov_specdec.cli.app import run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
