"""`python -m tests.benchmarks sweeps`: draft lengths, temperatures, the cost of a pass."""

import json
from dataclasses import asdict
from pathlib import Path

import click

from ov_specdec.bench.prompts import CODE, read_prompts
from ov_specdec.cli.bench import progress
from ov_specdec.loading.locate import embedded_folder
from ov_specdec.text.tokenizer import load_tokenizer
from tests.benchmarks.options import PATH, pair_options
from tests.benchmarks.peers.environment import describe_environment
from tests.benchmarks.peers.prompts import encode_prompts
from tests.benchmarks.peers.setup import Setup
from tests.benchmarks.sweep.measure import FULL, QUICK, num_steps, run_sweeps
from tests.benchmarks.sweep.plots import write_plots


@click.command()
@pair_options
@click.option("--prompts", "file", type=PATH, help="File of prompts. [the benchmark's code]")
@click.option("--quick", is_flag=True, help="A few settings on one prompt.")
@click.option("--device", default="CPU", show_default=True, help="OpenVINO device.")
@click.option("--precision", default="default", show_default=True)
@click.option("--output", type=PATH, default=Path("sweeps"), show_default=True, help="Folder.")
def sweeps(main, draft, file, quick, device, precision, output):
    """Measure draft lengths, temperatures and the cost of passes, and draw them."""
    plan = QUICK if quick else FULL
    folders = [str(main or embedded_folder("main")), str(draft or embedded_folder("draft"))]
    setup = Setup(*folders, device=device, precision=precision)
    texts = CODE if file is None else read_prompts(file)
    prompts = encode_prompts(load_tokenizer(Path(folders[0])), texts, None)
    with progress("Sweeps", num_steps(plan, len(prompts))) as step:
        found = run_sweeps(setup, prompts, plan, step)
    output.mkdir(parents=True, exist_ok=True)
    environment = describe_environment(setup, "python -m tests.benchmarks")
    report = {"environment": environment, "sweeps": asdict(found)}
    (output / "sweeps.json").write_text(json.dumps(report), encoding="utf-8")
    for path in write_plots(output, found):
        click.echo(path)
