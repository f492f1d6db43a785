"""`python -m lab.benchmarks figures`: what the pages state, into docs/figures."""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from unittest.mock import patch

import click

from lab.benchmarks import priority
from lab.benchmarks.figures.given import Given, embedded
from lab.benchmarks.figures.parts import PARTS
from lab.benchmarks.figures.results import FOLDER, cells, rising
from lab.benchmarks.kernels import restart_limited
from lab.benchmarks.measuring import Measurements, measure_into
from lab.benchmarks.options import PATH, Command, several
from lab.benchmarks.peers.asks import BenchmarkError
from lab.benchmarks.record import CPUINFO, LIMIT, Record, current_code, instructions, select
from lab.benchmarks.texts import Prompts, heldout_text
from ov_specdec.cli.terminal import with_errors
from ov_specdec.errors import SpecdecError
from ov_specdec.models.locate import locate


@dataclass(frozen=True)
class Column:
    """One kind of processor.

    needs: beginnings of the names of instructions that it has. limit: what takes wider ones, named
    in `wider`, away from oneDNN. properties: what OpenVINO does on such a processor by default,
    where it would do something else on one that is limited. limits_kernels: OpenVINO's own kernels
    are limited to AVX2 too.
    """

    needs: Sequence[str] = ()
    limit: str = ""
    wider: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    limits_kernels: bool = False


F32 = {"INFERENCE_PRECISION_HINT": "f32"}
AVX2 = Column(("avx_vnni",), "AVX2_VNNI", ("avx512",), F32)

COLUMNS = {
    "avx512-bf16": Column(("avx512_bf16",), "AVX512_CORE_BF16", ("amx",)),
    # Xeons of 2019 and 2021.
    "avx512": Column(("avx512_vnni",), "AVX512_CORE_VNNI", ("avx512_bf16", "amx"), F32),
    # Intel Core since 2021. Dynamic quantization stays as the plugin sets it there.
    "avx2-vnni": AVX2,
    "avx2-all-kernels": replace(AVX2, limits_kernels=True),
    # AMD's until Zen 3, and laptops before 2021.
    "avx2": Column(("avx2",), "AVX2", ("avx_vnni", "avx512", "amx"), F32),
    "native": Column(),
}
"""By name. "native" is this processor as it is: to try the laboratory, and to compare commits."""


def model(name: str, says: str, folder: str = "") -> Callable[[Command], Command]:
    """An option for a model, whose role it names. folder: in `models`, taken where it is there."""
    default = Path("models", folder)

    def find(context: click.Context, option: click.Parameter, given: str | None) -> Path | None:
        return locate(given) if given else default if folder and default.is_dir() else None

    says += f" [{default}]" * bool(folder)
    return click.option(name, callback=find, metavar="DIR", help=says)


@click.command()
@with_errors
@click.argument("column", type=click.Choice(tuple(COLUMNS)))
@click.option("--minutes", default=90.0, show_default=True, help="Of all parts together, at most.")
@click.option("--prompts", "most", type=click.IntRange(1), help="Of each part: to try it.")
@several("--only", str, tuple(PARTS), says="Parts.", among=PARTS)
@model("--expanded", "A main of 1 B.", "main-expanded-1b-int8")
@model("--larger", "A main of 3 B.", "main-expanded-3b-int8")
@model("--expanded-int4", "The one of 1 B in int4.", "main-expanded-1b-int4")
@model("--expanded-draft", "Their draft of 100 M.", "draft-expanded-100m-int8")
@model("--chat", "A chat model, such as SmolLM2-135M-Instruct.")
@model("--real-main", "A chat model that writes code.")
@model("--real-int4", "The same in int4.")
@model("--real-draft", "Their draft.")
@model("--speech", "A Whisper.")
@click.option("--recording", "recordings", type=PATH, multiple=True, help="English, for --speech.")
@click.option("--output", type=PATH, help="[docs/figures/COLUMN.json]")
def figures(
    column: str,
    minutes: float,
    most: int | None,
    only: tuple[str, ...],
    recordings: tuple[Path, ...],
    output: Path | None,
    **folders: Path | None,
) -> None:
    """Measure what the pages state into one file for each column.

    COLUMN is a kind of processor; "native" is this one as it is. A file is gone on with on the
    same processor, at the same priority, with the same models and versions only. What another
    commit measured of these parts is measured anew.
    """
    properties = dict(enter(column, instructions(CPUINFO) or []).properties)
    level = priority.take()
    found = {role.replace("_", " "): folder for role, folder in folders.items() if folder}
    given = Given({**embedded(), **found}, recordings, properties, level)
    options = {"column": column, "properties": properties, "prompts": prompts_of_parts()}
    record = Record.begin(options, given.folders)
    record.machine["priority"] = level
    file = output or FOLDER / f"{column}.json"
    record = resumed(record, file, only)
    with own_cache():
        failed = measure_parts(record, given, only, minutes, most, file)
    click.echo(file)
    if failed:
        raise click.ClickException(f"not measured: {', '.join(failed)}; the reasons are above")


def enter(name: str, instructions: Sequence[str]) -> Column:
    """Limit this process and what it starts to a column's instructions.

    OpenVINO must not have compiled a model yet: it reads the limit once. `BenchmarkError` on a
    processor that lacks some.
    """
    column = COLUMNS[name]
    for need in column.needs:
        if not has(instructions, need):
            found = ", ".join(instructions) or "none of those known here"
            raise BenchmarkError(
                f"{name} needs a processor with {need}, and this one has {found}: measure on "
                "another one, or 'native'"
            )
    if any(has(instructions, wider) for wider in column.wider):
        os.environ[LIMIT] = column.limit
        if column.limits_kernels:
            restart_limited()
    return column


def has(instructions: Sequence[str], beginning: str) -> bool:
    """Whether there are instructions whose names begin so."""
    return any(each.startswith(beginning) for each in instructions)


def prompts_of_parts() -> dict[str, str]:
    """Hashes of the prompts and of the contexts before them."""
    found = {name: Prompts.read(name).digest for name in ("heldout", "tasks", "code_chat")}
    return {**found, "contexts": sha256(heldout_text().encode()).hexdigest()[:12]}


def resumed(record: Record, file: Path, parts: Collection[str]) -> Record:
    """The record in a file, to go on with, or this one where there is none.

    Not all models have to be given each time: those that only one of the two knows are in both.
    """
    kept, code = Record.read(file) if file.exists() else record, current_code()
    anew = [part for part in parts if not code.items() <= kept.code.get(part, {}).items()]
    kept.code |= {part: dict(code) for part in anew}
    kept.rows = [row for row in kept.rows if row["part"] not in anew]
    record.require_same(kept, file)
    kept.models = {**record.models, **kept.models}
    return kept


@contextmanager
def own_cache() -> Iterator[None]:
    """A cache folder of this run: another commit's costs of passes would stand in the user's."""
    with TemporaryDirectory() as folder, patch.dict(os.environ, XDG_CACHE_HOME=folder):
        yield


def measure_parts(
    record: Record,
    given: Given,
    only: tuple[str, ...],
    minutes: float,
    most: int | None,
    file: Path,
) -> list[str]:
    """Measure parts, each within its share of the time; those that failed."""
    file.parent.mkdir(parents=True, exist_ok=True)
    given = replace(given, rows=record.rows)
    chosen = {name: part for name, part in PARTS.items() if name in only and given.has(part.needs)}
    for name in only:
        if name not in chosen:
            click.echo(f"{name}: left out, for there is no {PARTS[name].needs}", err=True)
    end, failed = monotonic() + 60 * minutes, list[str]()
    to_come = sum(part.minutes for part in chosen.values())
    for name, part in chosen.items():
        share = (end - monotonic()) * part.minutes / to_come
        to_come -= part.minutes
        if share <= 0:
            click.echo(f"{name}: left out, for the time is up", err=True)
            continue
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        record.code[name].setdefault("date", now)
        try:
            with closing(part.measure(given)) as measurements:
                rows = rows_of(name, measurements, most)
                measure_into(record, rows, partial(record.write, file), share)
            for group in cells(select(record.rows, part=name)).values():
                if longest := rising(group):
                    raise BenchmarkError(f"the sweep rises up to {longest}: add longer ones")
        except SpecdecError as error:
            click.echo(f"{name}: {error}", err=True)
            failed.append(name)
    return failed


def rows_of(part: str, measurements: Measurements, most: int | None) -> Measurements:
    """The measurements of a part as rows of the file of all; of so many prompts."""
    for key, measure in measurements:
        if most is None or int(key.get("prompt") or 0) < most:
            yield {"part": part, **key}, measure
