"""`python -m tests.traces` plays all runs, and shows where each differs from its record."""

import click

from tests.traces import golden
from tests.traces.recorder import Record, play
from tests.traces.runs import GROUPS


@click.command()
@click.option("--write", is_flag=True, help="Keep the new records, but for groups with an error.")
def main(write: bool) -> None:
    """Play all runs, and show the first step in which each differs from its record."""
    num_differing = 0
    for group, module in GROUPS.items():
        runs = module.RUNS
        kept, played = golden.read(group), dict[str, list[Record]]()
        for run in runs:
            try:
                played[run.name] = play(run)
                found = golden.difference(kept.get(run.name, []), played[run.name])
            except Exception as error:
                found = f"raises {error!r}"
            if found:
                num_differing += 1
                click.echo(f"{group}: {run.name}: {found}\n")
        if write and len(played) == len(runs):
            golden.write(group, str(module.__doc__), played)
    click.echo(f"{num_differing} runs differ")
    raise SystemExit(bool(num_differing and not write))


if __name__ == "__main__":
    main()
