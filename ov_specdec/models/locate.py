"""Finds a model: in the embedded pair, in a local folder, or on the Hugging Face Hub."""

from difflib import get_close_matches
from pathlib import Path
from shlex import quote
from typing import Any

from ov_specdec.errors import ExportError, ModelError
from ov_specdec.files import expand_home, read_json

IR_FILE = "openvino_model.xml"
DECODER_FILE, ENCODER_FILE = "openvino_decoder_model.xml", "openvino_encoder_model.xml"
"""The two parts of an encoder-decoder model."""

PROJECTION_FILE = "openvino_projection.xml"
"""What a draft model reads of the main model's hidden states, computed by the main model."""

GGUF = ".gguf"
NO_GGUF = (
    "a format that is not read: export the original model from its folder or Hub name, for "
    "example: ov-specdec export --main owner/model"
)

HUB_FILES = ["openvino_*.xml", "openvino_*.bin", "*.json", "*.jinja"]
"""Patterns of files to download from a repository; for other formats they match little."""


def embedded_folder(role: str) -> Path:
    """The folder of the embedded `main` or `draft`, in the package or in a checkout."""
    package = Path(__file__).parent.parent
    for folder in (package / "models" / role, package.parent / "models" / role):
        if (folder / IR_FILE).is_file():
            return folder
    raise ModelError(f"the embedded {role} model is missing from {package}: reinstall ov-specdec")


def decoder_file(folder: Path) -> str:
    """The name of the decoder's IR, or of the only one."""
    return DECODER_FILE if (folder / DECODER_FILE).is_file() else IR_FILE


def locate(name: str | Path | None, role: str = "main") -> Path:
    """The folder that holds the IR called `name`: a local folder, or else a Hub repository.

    None: the embedded model of this role. A repository is downloaded once, into the Hub's cache.
    """
    if name is None:
        return embedded_folder(role)
    folder = expand_home(name)
    if folder.is_dir():
        if (folder / decoder_file(folder)).is_file():
            return folder
        if (folder / "config.json").is_file():
            example = f"ov-specdec export --main {quote(str(name))} --weight-format int8"
            remedy = f"export the model first, for example: {example}"
            raise ModelError(f"'{name}' holds no {IR_FILE}: {remedy}")
        if any(folder.glob(f"*{GGUF}")):
            raise ModelError(f"'{name}' holds GGUF files, {NO_GGUF}")
        raise ModelError(f"'{name}' holds no model: give the folder that holds {IR_FILE}")
    check_place(name)
    return _download(str(name))


def check_place(name: str | Path) -> None:
    """Raise `ModelError` for neither a folder nor a possible name of a Hub repository."""
    folder = expand_home(name)
    if folder.is_dir() or (not folder.exists() and is_hub_name(str(name))):
        return
    if folder.suffix.lower() == GGUF:
        raise ModelError(f"'{name}' is a GGUF file, {NO_GGUF}")
    if folder.exists():
        raise ModelError(f"'{name}' is not a folder: give the folder that holds {IR_FILE}")
    remedy = f"give the folder that holds {IR_FILE}"
    if set(str(name)) & {"/", "\\"}:
        raise ModelError(f"'{name}' does not exist: {similar(name, remedy)}")
    remedy += ", or a name on the Hub, which is owner/model"
    raise ModelError(f"'{name}' is not a folder here: {similar(name, remedy)}")


def similar(name: str | Path, otherwise: str) -> str:
    """The remedy for a folder that does not exist: one of a similar name, or else `otherwise`."""
    folder = missing = expand_home(name)
    while not missing.parent.is_dir():
        missing = missing.parent
    rest = folder.relative_to(missing)
    known = {each.name: each / rest for each in missing.parent.glob("*") if (each / rest).is_dir()}
    close = get_close_matches(missing.name, known, n=1)
    return f"did you mean {quote(str(known[close[0]]))}?" if close else otherwise


def is_hub_name(name: str) -> bool:
    """Whether it is a possible Hub name: `owner/model`, but not `./x` or `../x`."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return "/" in name


def connection_errors() -> tuple[type[OSError], type[RuntimeError], type[Exception]]:
    """Errors of the Hub's client without a connection, over its releases."""
    from httpx import HTTPError  # not an OSError

    return OSError, RuntimeError, HTTPError


def _download(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(name, allow_patterns=HUB_FILES))
    except LocalEntryNotFoundError as error:
        problem = f"'{name}' is neither a local folder nor, without a network, in the Hub's cache"
        remedy = similar(name, "give a folder, or connect")
        raise ModelError(f"{problem}: {remedy}") from error
    except HfHubHTTPError as error:
        problem = f"the Hub refuses '{name}' ({str(error).splitlines()[0]})"
        remedy = similar(name, "check the name, and for a gated model log in with: hf auth login")
        raise ModelError(f"{problem}: {remedy}") from error
    except connection_errors() as error:
        problem = f"'{name}' cannot be downloaded ({type(error).__name__}: {error})"
        remedy = similar(name, "check the network and its proxy, or give a folder")
        raise ModelError(f"{problem}: {remedy}") from error
    if not (folder / decoder_file(folder)).is_file():
        remedy = f"export it first, for example: ov-specdec export --main {name}"
        raise ModelError(f"'{name}' on the Hub is not an OpenVINO model: {remedy}")
    return folder


def read_config(name: str) -> tuple[Path, dict[str, Any]]:
    """The folder and content of a checkpoint's config.json, downloaded for a Hub model."""
    from huggingface_hub import hf_hub_download

    file = Path(name) / "config.json"
    try:
        file = file if file.is_file() else Path(hf_hub_download(name, file.name))
    except (ValueError, *connection_errors()) as error:
        raise ExportError(
            f"{name}: config.json cannot be downloaded ({' '.join(str(error).split())}): check the "
            "name and the network; for a gated or private model, log in with hf auth login"
        ) from error
    return file.parent, read_json(file)


def is_exported(name: str) -> bool:
    """Whether a folder, or a repository that can be reached, holds the IR of a decoder."""
    from huggingface_hub import hf_hub_download

    folder = expand_home(name)
    if folder.is_dir():
        return (folder / IR_FILE).is_file()
    try:
        return Path(hf_hub_download(name, IR_FILE)).is_file()
    except (ValueError, *connection_errors()):
        return False
