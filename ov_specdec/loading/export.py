"""Exports a checkpoint to OpenVINO IR with Optimum's command."""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ov_specdec.errors import ExportError, OptionError
from ov_specdec.loading.attention import lost_cap
from ov_specdec.loading.export_environment import Progress, find_python
from ov_specdec.loading.folder import ModelFolder
from ov_specdec.loading.int4 import (
    DEFAULT_GROUP_SIZE,
    GROUP_SIZES,
    Int4Options,
    fitting_group_size,
    layer_widths,
)
from ov_specdec.loading.locate import (
    DECODER_FILE,
    ENCODER_FILE,
    IR_FILE,
    connection_errors,
    decoder_file,
    is_hub_name,
)
from ov_specdec.loading.optimum import check_optimum, known_failure, run_optimum
from ov_specdec.loading.origin import require_origin, write_origin
from ov_specdec.loading.partial import partial_folder
from ov_specdec.loading.source import read_ir
from ov_specdec.text.tokenizer import MARIAN_FILE

WeightFormat = Literal["fp16", "int8", "int4"]
NEEDED_FILES = (IR_FILE, "openvino_model.bin", "config.json", "tokenizer.json")
ENCODER_DECODER_FILES = (
    *(ENCODER_FILE, "openvino_encoder_model.bin", DECODER_FILE, "openvino_decoder_model.bin"),
    *NEEDED_FILES[2:],
)

TASK = "text-generation"
ENCODER_DECODER_TASKS = {"whisper": "automatic-speech-recognition"}
"""Tasks of encoder-decoder models by type; the default is text to text."""
TEXT_TO_TEXT_TASK = "text2text-generation"

# Vocabulary files of the kinds of tokenizers in transformers. The last pattern is a model's own
# code, which may read other files.
TOKENIZERS = (
    ("tokenizer.json",),
    ("tokenizer.model*",),
    ("vocab.json", "merges.txt"),
    ("vocab.txt",),
    ("spiece.model",),
    ("sentencepiece*.model",),
    ("spm*.model",),
    ("tekken.json",),
    ("*.tiktoken",),
    ("tiktoken.model",),
    ("tokenization_*.py",),
)


@dataclass(frozen=True)
class Exported:
    """A finished export, and whether this call made it."""

    folder: Path
    is_new: bool


def export_model(
    name: str,
    output: Path,
    weight_format: str,
    int4: Int4Options | None = None,
    *,
    trust_remote_code: bool = False,
    transformers: str | None = None,
    on_note: Callable[[str], object] = lambda _note: None,
    on_progress: Progress = lambda _line: None,
) -> Exported:
    """Export a Hub model or a local checkpoint to its own folder in `output`.

    The IR is written to a temporary folder and moved when complete, so that an interrupted export
    is never taken for a finished one. A finished export of the same model is kept; given int4
    options are part of its name, and a folder of another model is an error. transformers: the
    version for the export, in a separate environment; None: the installed one. on_note: called with
    a note, such as a chosen group size. on_progress: called with the progress of the environment.
    Raises `ExportError`, `TransformersVersionError` if Optimum needs another version, and
    `OptionError` for int4 options with another format.
    """
    int4 = int4 or Int4Options()
    if weight_format != "int4" and (given := int4.arguments()):
        raise OptionError(
            f"{given[0]} has no effect with --weight-format {weight_format}: leave it out, or "
            "export as int4"
        )
    model = Path(name).resolve().name if Path(name).is_dir() else Path(name).name
    folder = output / f"{model}-{weight_format}{int4.suffix()}"
    if folder.exists():
        require_complete(folder, f"remove {folder} and export again")
        require_origin(folder, name)
        return Exported(folder, is_new=False)
    _check_source(name)
    check_optimum()
    python = sys.executable if transformers is None else find_python(transformers, on_progress)
    with partial_folder(output, folder.name) as partial:
        if weight_format == "int4":
            int4 = _with_group_size(int4, name, partial, on_note)
        config = _known_config(name, partial)
        family = str(config.get("model_type", ""))
        options = ["--task", f"{_task(config, family)}-with-past"]
        options += ["--weight-format", weight_format, *int4.arguments()]
        options += ["--trust-remote-code"] if trust_remote_code else []
        run_optimum(name, family, partial / folder.name, options, python)
        require_complete(partial / folder.name, "the model may have no fast tokenizer")
        if not Path(name).is_dir():
            _require_tokenizer(_cached_snapshot(name), name)
        _note_lost_cap(partial / folder.name, name, on_note)
        write_origin(partial / folder.name, name)
        (partial / folder.name).rename(folder)
    return Exported(folder, is_new=True)


def _note_lost_cap(folder: Path, name: str, on_note: Callable[[str], object]) -> None:
    """Report a cap on attention scores that the export lost."""
    found = ModelFolder.read(folder)
    if found.attention_cap is not None and (lost := lost_cap(found, read_ir(found))):
        on_note(f"{name}: {lost}")


def _check_source(name: str) -> None:
    source = Path(name)
    if source.is_dir():
        if (source / decoder_file(source)).is_file():
            raise ExportError(
                f"'{name}' is already exported, since it contains {decoder_file(source)}: use it "
                "directly, or give the folder of its checkpoint"
            )
        if not (source / "config.json").is_file():
            raise ExportError(f"'{name}' holds no config.json: give the folder of a checkpoint")
        _require_tokenizer(source, name)
    elif source.exists() or not is_hub_name(name):
        raise ExportError(
            f"'{name}' is neither a folder here nor a Hub name, which is owner/model: check it"
        )


def _require_tokenizer(checkpoint: Path, name: str) -> None:
    """Refuse a checkpoint without a vocabulary: transformers would invent a tokenizer."""
    if (checkpoint / MARIAN_FILE).is_file():
        raise ExportError(
            f"'{name}' has Marian's tokenizer ({MARIAN_FILE}), which cannot be saved as a "
            "tokenizer.json: use a model with another one, such as T5, mBART or NLLB"
        )
    if not any(all(any(checkpoint.glob(file)) for file in kind) for kind in TOKENIZERS):
        raise ExportError(
            f"'{name}' has no tokenizer (no tokenizer.json, tokenizer.model, vocab.json with "
            "merges.txt, vocab.txt, ...): put the tokenizer files of the model that it was made "
            "from into a folder with its other files, and export that folder"
        )


def _cached_snapshot(name: str) -> Path:
    """The downloaded snapshot of a Hub model."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, local_files_only=True))
    except LocalEntryNotFoundError as error:
        raise ExportError(
            f"'{name}' is not in the Hub's cache after its export, so its tokenizer cannot be "
            "checked: download the model into a folder, and export that folder"
        ) from error


def _with_group_size(
    int4: Int4Options, name: str, place: Path, on_note: Callable[[str], object]
) -> Int4Options:
    """The options, with a group size if none is given and Optimum's default does not fit."""
    if int4.group_size is not None:
        return int4
    widths = layer_widths(_read_config(name, place))
    size = fitting_group_size(widths)
    if size == DEFAULT_GROUP_SIZE:
        return int4  # Optimum has specific settings for some models
    if size is None:
        raise ExportError(
            f"{name}: int4 groups of {', '.join(map(str, GROUP_SIZES))} do not fit its layers of "
            f"widths {', '.join(map(str, widths))}: choose a --group-size that divides these, or "
            "-1 for one group to a row, or --weight-format int8"
        )
    misfit = next(width for width in widths if width % DEFAULT_GROUP_SIZE)
    on_note(
        f"{name}: int4 weights in groups of {size}, since {DEFAULT_GROUP_SIZE} does not divide "
        f"its layers' width of {misfit} (--group-size chooses another size)"
    )
    return replace(int4, group_size=size)


def _known_config(name: str, place: Path) -> dict[str, Any]:
    """A checkpoint's config.json; empty after an error, which Optimum will report."""
    try:
        return _read_config(name, place)
    except ExportError:
        return {}


def _task(config: Mapping[str, Any], family: str) -> str:
    """Optimum's task for a model."""
    if not config.get("is_encoder_decoder"):
        return TASK
    return ENCODER_DECODER_TASKS.get(family, TEXT_TO_TEXT_TASK)


def _read_config(name: str, place: Path) -> dict[str, Any]:
    """A checkpoint's config.json, downloaded for a Hub model."""
    from huggingface_hub import hf_hub_download

    local = Path(name) / "config.json"
    try:
        path = local if local.is_file() else Path(hf_hub_download(name, local.name))
        config = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, *connection_errors()) as error:
        known = known_failure(f"{type(error).__name__}: {error}", name, place)
        remedy = "check it, or the network, or download the model and give its folder"
        raise ExportError(
            f"{name}: {known or f'config.json cannot be read ({error}): {remedy}'}"
        ) from error
    if not isinstance(config, dict):
        raise ExportError(f"{name}: config.json holds no JSON object: give a complete checkpoint")
    return config


def require_complete(folder: Path, remedy: str) -> None:
    """Raise `ExportError`, with the remedy, for a folder that lacks a part of a model."""
    is_pair = (folder / DECODER_FILE).is_file() or (folder / ENCODER_FILE).is_file()
    needed = ENCODER_DECODER_FILES if is_pair else NEEDED_FILES
    missing = [file for file in needed if not (folder / file).is_file()]
    if missing:
        raise ExportError(f"'{folder.name}' has no {missing[0]}, so it is not usable: {remedy}")
