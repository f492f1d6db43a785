"""The command line: parses options, calls the package, and prints results."""


def main() -> None:
    """Run the command line; one line on stderr and exit code 2 after an error, 130 after Ctrl-C."""
    from ov_specdec.cli.app import run

    run()
