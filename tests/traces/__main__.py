"""`python -m tests.traces` plays all runs, and shows where each differs from its record."""

import click

from tests.traces import golden
from tests.traces.recorder import play
from tests.traces.runs import GROUPS


@click.command()
@click.option("--write", is_flag=True, help="Keep the new records.")
@click.option("--run", "wanted", help="Only this run; nothing is kept.")
def main(write: bool, wanted: str | None) -> None:
    """Play all runs, and show the first step in which each differs from its record."""
    num_differing = 0
    for group, runs in GROUPS.items():
        kept = golden.read(group)
        played = {run.name: play(run) for run in runs if wanted in (None, run.name)}
        for name, records in played.items():
            if found := golden.difference(kept.get(name, []), records):
                num_differing += 1
                click.echo(f"{group}: {name}: {found}\n")
        if write and wanted is None:
            golden.write(group, played)
    click.echo(f"{num_differing} runs differ" + (", and are kept as they are now" * write))
    raise SystemExit(bool(num_differing and not write))


if __name__ == "__main__":
    main()
