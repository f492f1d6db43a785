"""The origin of a model folder: different models may have folders of the same name."""

from pathlib import Path

from ov_specdec.errors import ExportError
from ov_specdec.files import expand_home
from ov_specdec.loading.locate import embedded_folder

ORIGIN_FILE = "exported_from.txt"


def write_origin(folder: Path, model: str | Path) -> None:
    """Write the origin to a folder: the model's folder or Hub name."""
    (folder / ORIGIN_FILE).write_text(f"{_origin(model)}\n", encoding="utf-8")


def require_origin(folder: Path, model: str | Path) -> None:
    """Raise `ExportError` for a folder that was made from another model.

    A folder without an origin, such as one of other tools, is accepted.
    """
    file = folder / ORIGIN_FILE
    if not file.is_file():
        return
    found, wanted = file.read_text(encoding="utf-8", errors="replace").strip(), _origin(model)
    if found != wanted:
        raise ExportError(
            f"{folder} was made from {found}, not from {wanted}: choose another --output, or "
            "remove it"
        )


def _origin(model: str | Path) -> str:
    folder = expand_home(model)
    if not folder.is_dir():
        return str(model)
    for role in ("main", "draft"):  # their paths change with the installation
        if folder.resolve() == embedded_folder(role).resolve():
            return f"the embedded {role}"
    return str(folder.resolve())
