"""Collect the corpus: permissively licensed Python source, split by package.

The packages are those pinned in ``train-packages.txt`` and ``heldout-packages.txt``; pip
installs them (without their dependencies) under ``DATA/packages``. The standard library of the
running interpreter joins the training side. Result: ``DATA/corpus/{train,heldout}.jsonl``, one
file a line as ``{"package", "path", "text"}``, and a list of packages in ``manifest.json`` and
``packages.md`` beside them.
"""

import argparse
import ast
import hashlib
import json
import platform
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from config import say
from duplicates import Seen

HERE = Path(__file__).resolve().parent

PERMISSIVE = re.compile(r"\b(MIT|BSD|Apache|PSF|Python Software Foundation|ISC|Unlicense)\b", re.I)
NOT_PERMISSIVE = re.compile(r"\b(A?L?GPL|MPL|Mozilla|EPL|CDDL|proprietary)", re.I)

SKIPPED_FOLDERS = {
    *("test", "tests", "testing", "idle_test", "conftest", "_vendor", "vendor", "vendored"),
    *("externals", "extern", "_external", "third_party", "thirdparty", "array_api_compat"),
    *("array_api_extra", "_generated", "generated", "_antlr", "migrations", "locale", "locales"),
    *("encodings", "lib2to3", "site-packages", "dist-packages", "pydoc_data", "unicode"),
    *("_distutils", "autolev", "latex", "lexers", "styles", "typeshed", "_data", "_click"),
}
SKIPPED_NAME = re.compile(
    r"^(test_|conftest|_version|version\.py|setup\.py)|_tests?\.py$|_pb2|_generated|lextab|parsetab"
)
GENERATED = re.compile(r"generated (by|from|file|with|on)|auto-?generated|do not edit", re.I)
NOTICE = re.compile(r"copyright|licen[cs]e|all rights reserved|coding[:=]|^#!", re.I)


def licence_of(dist: metadata.Distribution) -> str:
    """The licence a package declares: SPDX expression, else its classifiers, else free text."""
    info = dist.metadata
    if info.get("License-Expression"):
        return info["License-Expression"]
    classifiers = [c for c in info.get_all("Classifier") or [] if c.startswith("License ::")]
    named = [c.rsplit(" :: ", 1)[-1] for c in classifiers if c != "License :: OSI Approved"]
    return "; ".join(named) or (info.get("License") or "").strip().split("\n")[0][:80]


def is_permissive(licence: str) -> bool:
    """Whether every licence named is on the permissive list (none of them copyleft)."""
    return bool(PERMISSIVE.search(licence)) and not NOT_PERMISSIVE.search(licence)


def clean(text: str) -> str | None:
    """The text without its leading legal notice, or None where the file is not worth learning.

    Refused: generated files, tables of data (long lines, few letters), sources that do not parse
    and those outside 300 to 60,000 characters.
    """
    text = text.replace("\r\n", "\n").replace("\t", "    ").lstrip("\ufeff")
    if not 300 <= len(text) <= 60_000 or GENERATED.search(text[:1500]):
        return None
    lines = [line.rstrip() for line in text.split("\n")]
    head = 0
    while head < len(lines) and (not lines[head] or lines[head].startswith("#")):
        head += 1
    # Licence headers open most files: left in, they would be what the model knows best.
    if NOTICE.search("\n".join(lines[:head])):
        lines = lines[head:]
    text = "\n".join(lines).strip("\n") + "\n"
    if len(text) < 300 or max(map(len, lines)) > 200 or not text.isascii():
        return None
    letters = sum(c.isalpha() or c.isspace() for c in text)
    if letters < 0.7 * len(text):
        return None
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    return text


def is_wanted(path: Path) -> bool:
    """Whether a path (relative to its package root) is Python source that is no test or copy."""
    if path.suffix != ".py" or SKIPPED_FOLDERS & {part.lower() for part in path.parts[:-1]}:
        return False
    return ".." not in path.parts and not SKIPPED_NAME.search(path.name)


def sources(paths: list[tuple[str, Path]], limit: int, seen: Seen) -> Iterator[dict[str, str]]:
    """Cleaned files of one package, at most ``limit`` characters, none nearly seen before.

    ``paths`` are (name to record, file). The order is that of a hash of the name, so that a
    package cut at the limit gives a spread of its modules and always the same one.
    """
    total = 0
    for name, path in sorted(paths, key=lambda p: hashlib.sha256(p[0].encode()).digest()):
        try:
            text = clean(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            continue
        if text is None or total + len(text) > limit:
            continue
        if seen.add(text):
            total += len(text)
            yield {"path": name, "text": text}


def install(requirements: Path, target: Path) -> None:
    """Install the pinned packages without dependencies into a folder of their own."""
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-compile"]
    subprocess.run([*command, "--target", target, "-r", requirements], check=True)  # noqa: S603 - our own words and two paths


def package_files(target: Path, limit: int, seen: Seen) -> Iterator[tuple[dict, list[dict]]]:
    """For each installed distribution: its manifest row and its files."""
    for dist in sorted(metadata.distributions(path=[str(target)]), key=lambda d: d.name.lower()):
        licence = licence_of(dist)
        row = {"package": dist.name, "version": dist.version, "licence": licence}
        if not is_permissive(licence):
            say(f"left out {dist.name}: licence {licence!r} is not on the permissive list")
            continue
        wanted = [Path(str(f)) for f in dist.files or [] if is_wanted(Path(str(f)))]
        paths = [(f.as_posix(), target / f) for f in wanted]
        yield row, list(sources(paths, limit, seen))


def stdlib_files(limit: int, seen: Seen) -> tuple[dict, list[dict]]:
    """The running interpreter's standard library: manifest row and files."""
    root = Path(sysconfig.get_paths()["stdlib"])
    wanted = [p for p in root.rglob("*.py") if is_wanted(p.relative_to(root))]
    paths = [(p.relative_to(root).as_posix(), p) for p in wanted]
    row = {"package": "cpython-stdlib", "version": platform.python_version(), "licence": "PSF-2.0"}
    return row, list(sources(paths, limit, seen))


def table(manifest: list[dict]) -> str:
    """The packages of both sides as Markdown, for the model card."""
    lines = []
    for side in ("train", "heldout"):
        lines += [f"| package ({side}) | version | licence | files | characters |"]
        lines += ["|---|---|---|---|---|"]
        for row in (row for row in manifest if row["side"] == side):
            cells = (row["package"], row["version"], row["licence"], row["files"])
            lines.append(f"| {' | '.join(map(str, cells))} | {row['characters']:,} |")
        lines.append("")
    return "\n".join(lines)


def build(data: Path, limit: int, stdlib_limit: int) -> None:
    """Write both sides of the corpus and its manifest.

    The held-out side goes first: what nearly equals one of its files is not in the training side.
    """
    seen = Seen()
    (data / "corpus").mkdir(parents=True, exist_ok=True)
    manifest = []
    for side in ("heldout", "train"):
        target = data / "packages" / side
        if not target.exists():
            install(HERE / f"{side}-packages.txt", target)
        packages = list(package_files(target, limit, seen))
        if side == "train":
            packages.append(stdlib_files(stdlib_limit, seen))
        with (data / "corpus" / f"{side}.jsonl").open("w", encoding="utf-8") as out:
            for row, files in packages:
                size = sum(len(f["text"]) for f in files)
                manifest.append({"side": side, **row, "files": len(files), "characters": size})
                for file in files:
                    out.write(json.dumps({"package": row["package"], **file}) + "\n")
    (data / "corpus" / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    (data / "corpus" / "packages.md").write_text(table(manifest))
    for side in ("train", "heldout"):
        rows = [row for row in manifest if row["side"] == side]
        total = sum(row["characters"] for row in rows) / 1e6
        say(f"{side}: {len(rows)} packages, {sum(r['files'] for r in rows)} files, {total:.1f} M")


def main() -> None:
    """Build the corpus."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder for everything built")
    parser.add_argument("--limit", type=int, default=3_000_000, help="characters kept a package")
    parser.add_argument("--stdlib-limit", type=int, default=12_000_000, help="the same, for stdlib")
    args = parser.parse_args()
    build(args.data, args.limit, args.stdlib_limit)


if __name__ == "__main__":
    main()
