"""Exports a checkpoint to OpenVINO IR with Optimum's command.

Folders of models are hidden until they are complete, and say what they were exported from, since
different models may have folders of the same name.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout

from ov_specdec.errors import ExportError, OptionError, install
from ov_specdec.files import expand_home, read_json
from ov_specdec.models.heads import add_pard2, kind_of_draft, write_eagle3
from ov_specdec.models.locate import (
    DECODER_FILE,
    ENCODER_FILE,
    IR_FILE,
    decoder_file,
    is_hub_name,
    read_config,
    similar,
)
from ov_specdec.options.model import Options, option

NEEDED_FILES = (IR_FILE, "openvino_model.bin", "config.json", "tokenizer.json")
ENCODER_DECODER_FILES = (
    *(ENCODER_FILE, "openvino_encoder_model.bin", DECODER_FILE, "openvino_decoder_model.bin"),
    *NEEDED_FILES[2:],
)

# Vocabulary files of the kinds of tokenizers in transformers. The last pattern is a model's own
# code, which may read other files.
TOKENIZERS = (
    *("tokenizer.json", "tokenizer.model*", "vocab.json merges.txt", "vocab.txt", "tekken.json"),
    *("spiece.model", "sentencepiece*.model", "spm*.model", "*.tiktoken", "tiktoken.model"),
    "tokenization_*.py",
)

ORIGIN_FILE = "exported_from.txt"

WeightFormat = Literal["fp16", "int8", "int4"]


class Int4Options(Options):
    """Optimum's options for int4 weights; Optimum has defaults for others."""

    group_size: int | None = option(
        None,
        "int4: weights that share a scale; -1: a whole row.",
        ge=-1,
        unset="Optimum decides, and adjusts it",
        expects="at least 1, or -1 for one group to a row",
        group="Weights",
    )
    ratio: float | None = option(
        None,
        "int4: fraction of layers in int4, the others in int8.",
        gt=0,
        le=1,
        unset="Optimum decides",
        metavar="R",
    )
    sym: bool = option(False, "int4: omit zero points.", unset="Optimum decides")

    def arguments(self) -> list[str]:
        """The given options, as command-line arguments."""
        given = {"--group-size": self.group_size, "--ratio": self.ratio}
        pairs = [(name, str(value)) for name, value in given.items() if value is not None]
        return [*chain(*pairs), *["--sym"] * self.sym]

    def suffix(self) -> str:
        """The given options, as a suffix of a folder's name."""
        return "".join(f"-{argument.removeprefix('--')}" for argument in self.arguments())


@dataclass(frozen=True)
class Exported:
    """A finished export, and whether this call made it."""

    folder: Path
    is_new: bool


def export_model(
    name: str,
    output: Path,
    weight_format: WeightFormat,
    int4: Int4Options | None = None,
    *,
    main: Path | None = None,
    trust_remote_code: bool = False,
    transformers: str | None = None,
) -> Exported:
    """Export a Hub model or a local checkpoint to its own folder in `output`.

    The IR is written to a temporary folder and moved when complete, so that an interrupted export
    is never taken for a finished one. A finished export of the same model is kept; given int4
    options are part of its name, and a folder of another model is an error.

    main: the exported main model, which a draft model that reads its hidden states needs.
    trust_remote_code: run Python code from the checkpoint. transformers: the version for the
    export, if not the installed one. Raises `ExportError` if there is no such model, or it cannot
    be exported, and `OptionError` for int4 options with another format.
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
        require_origin(folder, name, main)
        return Exported(folder, is_new=False)
    _check_checkpoint(name)
    require_installed("optimum", "optimum.intel")
    with partial_folder(output, folder.name) as parent:
        target = parent / folder.name
        checkpoint, config = read_config(name)
        kind = kind_of_draft(config, name)
        if kind is not None and main is None:
            raise ExportError(
                f"'{name}' reads hidden states of a main model, and so its export needs one: add "
                "{main}, which may be exported already",
                main="NAME",
            )
        if kind == "eagle3" and main is not None:
            write_eagle3(name, config, main, target, partial(compress, weight_format, int4))
        else:
            options = _optimum_options(config, weight_format, int4)
            options += ["--trust-remote-code"] if trust_remote_code else []
            run_optimum(name, str(config.get("model_type", "")), target, options, transformers)
            require_complete(target, "the model may have no fast tokenizer")
            _require_tokenizer(checkpoint, name)  # of a Hub model, it has been downloaded only now
            if kind == "pard2" and main is not None:
                add_pard2(name, config, main, target)
        write_origin(target, name, main if kind else None)
        target.rename(folder)
    return Exported(folder, is_new=True)


def _optimum_options(
    config: Mapping[str, Any], weight_format: WeightFormat, int4: Int4Options
) -> list[str]:
    task = "text-generation"
    if config.get("is_encoder_decoder"):
        is_whisper = config.get("model_type") == "whisper"
        task = "automatic-speech-recognition" if is_whisper else "text2text-generation"
    options = ["--task", f"{task}-with-past", "--weight-format", weight_format, *int4.arguments()]
    if weight_format == "int4" and int4.group_size is None:
        options += ["--group-size-fallback", "adjust"]
    return options


def compress(weight_format: WeightFormat, int4: Int4Options, model: Any) -> Any:
    """Compress the weights of an IR, as Optimum does by default."""
    import nncf

    if weight_format == "fp16":
        return model
    if weight_format == "int8":
        return nncf.compress_weights(model)
    fallback = nncf.GroupSizeFallbackMode.ADJUST
    return nncf.compress_weights(
        model,
        mode=nncf.CompressWeightsMode[f"INT4_{'SYM' if int4.sym else 'ASYM'}"],
        group_size=int4.group_size,
        ratio=int4.ratio,
        advanced_parameters=nncf.AdvancedCompressionParameters(group_size_fallback_mode=fallback),
    )


def python_with(transformers: str | None) -> list[str]:
    """The command of a Python with this version of transformers; None: the installed one.

    uv lays that version over this environment, whose other packages stay visible and unchanged, and
    keeps it in its own cache.
    """
    if transformers is None:
        return [sys.executable]
    require_installed("uv")
    pinned = f"--with=transformers=={transformers}", f"--with=numpy=={version('numpy')}"
    uv = [sys.executable, "-m", "uv", "run", "--no-project", f"--python={sys.executable}"]
    return [*uv, *pinned, "python"]


def run_optimum(
    name: str, family: str, target: Path, options: Sequence[str], transformers: str | None = None
) -> None:
    """Export a model to a folder. Raises `ExportError` if Optimum fails, after what it prints."""
    script = Path(__file__).with_name("optimum_process.py")
    command = [*python_with(transformers), str(script), family, "export", "openvino"]
    with subprocess.Popen(  # noqa: S603
        [*command, "--model", name, *options, str(target)],
        stdin=subprocess.PIPE,
        stdout=2,
        # A killed process removes no temporary files.
        env={**os.environ, "TMPDIR": str(target.parent.resolve())},
    ) as process:
        try:
            status = process.wait()
        finally:
            process.kill()  # after an interruption; no effect on an ended one
    if status:
        raise ExportError(
            f"{name}: Optimum failed with exit status {status}, and says why above: where it asks "
            "for another version of transformers, add {transformers}; for a gated model, log "
            "in with hf auth login; for one with its own code, read it, and add "
            "{trust_remote_code}; a status of -9 means that memory ran out",
            transformers="VERSION",
            trust_remote_code=True,
        )


def require_installed(*modules: str) -> None:
    """Raise `ExportError` if one of these is not installed."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise ExportError(f"{module} is not installed: {install('export')}")


def _check_checkpoint(name: str) -> None:
    checkpoint = Path(name)
    if checkpoint.is_dir():
        if (checkpoint / decoder_file(checkpoint)).is_file():
            raise ExportError(
                f"'{name}' is already exported, since it contains {decoder_file(checkpoint)}: use "
                "it directly, or give the folder of its checkpoint"
            )
        if not (checkpoint / "config.json").is_file():
            raise ExportError(f"'{name}' holds no config.json: give the folder of a checkpoint")
        _require_tokenizer(checkpoint, name)
    elif checkpoint.exists() or not is_hub_name(name):
        raise ExportError(
            f"'{name}' is neither a folder here nor a Hub name, which is owner/model: "
            f"{similar(name, 'check it')}"
        )


def _require_tokenizer(checkpoint: Path, name: str) -> None:
    """Refuse a checkpoint without a vocabulary: transformers would invent a tokenizer.

    Heads have none.
    """
    if (checkpoint / "source.spm").is_file():
        raise ExportError(
            f"'{name}' has Marian's tokenizer (source.spm), which cannot be saved as a "
            "tokenizer.json: use a model with another one, such as T5, mBART or NLLB"
        )
    if any(all(any(checkpoint.glob(file)) for file in kind.split()) for kind in TOKENIZERS):
        return
    if kind_of_draft(read_json(checkpoint / "config.json"), name) != "eagle3":
        raise ExportError(
            f"'{name}' has no tokenizer (no tokenizer.json, tokenizer.model, vocab.json with "
            "merges.txt, vocab.txt, ...): put the tokenizer files of the model that it was made "
            "from into a folder with its other files, and export that folder"
        )


def require_complete(folder: Path, remedy: str) -> None:
    """Raise `ExportError`, with the remedy, for a folder that lacks a part of a model."""
    is_pair = (folder / DECODER_FILE).is_file() or (folder / ENCODER_FILE).is_file()
    needed = ENCODER_DECODER_FILES if is_pair else NEEDED_FILES
    missing = [file for file in needed if not (folder / file).is_file()]
    if missing:
        raise ExportError(f"'{folder.name}' has no {missing[0]}, so it is not usable: {remedy}")


@contextmanager
def partial_folder(output: Path, name: str) -> Iterator[Path]:
    """A hidden folder in `output` to make `name` in; it is removed at the end.

    Also removes what a killed process left for the same `name`. A lock, which the system releases
    at the end of its process, protects a folder in use. Raises `ExportError` if `output` cannot be
    written, and if another process is making `name`.
    """
    folder, file = output / f".{name}", output / f".{name}.lock"
    lock = FileLock(file)
    try:
        output.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout as error:
        raise ExportError(
            f"another process is making {output / name}: wait until it ends, or choose another "
            "--output"
        ) from error
    except OSError as error:
        raise ExportError(f"--output '{output}' cannot be written ({error.strerror})") from error
    try:
        if (output / name).exists():
            raise ExportError(f"another process has just made {output / name}: run this again")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        # While held, since afterwards it may belong to another process.
        file.unlink(missing_ok=True)
        lock.release()


def write_origin(folder: Path, model: str | Path, main: Path | None = None) -> None:
    """Write the origin to a folder: of the model, and of the main model that it was made for.

    An origin is a Hub name or a folder. main: the exported one, if any.
    """
    text = "".join(f"{origin}\n" for origin in _origins(model, main))
    (folder / ORIGIN_FILE).write_text(text, encoding="utf-8")


def require_origin(folder: Path, model: str | Path, main: Path | None = None) -> None:
    """Raise `ExportError` for a folder that was made from another model, or for another main model.

    A folder without an origin, such as one of other tools, is accepted.
    """
    found, wanted = _read_origins(folder), _origins(model, main)
    if any(own != other for own, other in zip(found, wanted, strict=False)):
        raise ExportError(
            f"{folder} was made from {' for '.join(found)}, not from {' for '.join(wanted)}: "
            "choose another --output, or remove it"
        )


def _origins(model: str | Path, main: Path | None) -> list[str]:
    folder = expand_home(model)
    own = str(folder.resolve()) if folder.is_dir() else str(model)
    return [own] if main is None else [own, (_read_origins(main) or _origins(main, None))[0]]


def _read_origins(folder: Path) -> list[str]:
    file = folder / ORIGIN_FILE
    return file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else []
