"""A stand-in for Optimum, which exports find before it."""

from pathlib import Path


def stub_optimum(folder: Path, program: str) -> None:
    """Make a folder for the Python path, where Optimum's command line is `program`."""
    for package in ("optimum", "optimum/intel", "optimum/commands"):
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").touch()
    (folder / "optimum" / "commands" / "optimum_cli.py").write_text(program)


def names(folder: Path) -> list[str]:
    """What is in a folder."""
    return sorted(path.name for path in folder.iterdir())
