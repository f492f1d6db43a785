"""Profiles: the fastest measured settings of a pair on a machine, in a file."""

import errno
import hashlib
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ov_specdec.errors import OptionError
from ov_specdec.files import UNREADABLE, VERSION, read_sections, record_file, write_section
from ov_specdec.models.compile import fingerprint
from ov_specdec.models.devices import KvBackend, RuntimeConfig
from ov_specdec.models.folder import ModelFolder
from ov_specdec.options.model import require


@dataclass(frozen=True)
class Profile:
    """OpenVINO properties of both models, for one pair on one machine.

    pair: see `pair_fingerprint`. report: the measurements behind the choice.
    """

    pair: str
    main_properties: Mapping[str, str]
    draft_properties: Mapping[str, str]
    report: Mapping[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """The profile for JSON."""
        return {"version": VERSION, **asdict(self)}

    def write(self, path: Path) -> None:
        """Write the profile as JSON; folders are made as needed."""
        with _writing(path):
            write_section(path, "profile", asdict(self))


def require_writable(path: Path) -> None:
    """Raise `OptionError` unless a profile can be written to a file; its folder is made."""
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path.parent).close()
        if path.exists() and not path.is_file():
            raise FileExistsError(errno.EEXIST, "it is not a file")


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        problem = f"the profile '{path}' cannot be written ({error.strerror})"
        raise OptionError(f"{problem}: give another --output") from error


def read_profile(path: Path) -> Profile:
    """The profile in a file; `OptionError` if it cannot be read or is not as it was written."""
    try:
        profile = Profile(**read_sections(path)["profile"])
        for name in ("main_properties", "draft_properties"):
            require(name, getattr(profile, name), Mapping[str, str], "a mapping of names to texts")
    except (OSError, *UNREADABLE) as error:
        problem = f"the profile '{path}' cannot be read ({error})"
        raise OptionError(f"{problem}: run ov-specdec tune again") from error
    return profile


def pair_fingerprint(main: ModelFolder, draft: ModelFolder, device: str, kv: KvBackend) -> str:
    """A key of both models, the device and the KV backend, with default settings."""
    config = RuntimeConfig(device, kv=kv)
    both = "\n".join(fingerprint(folder, config, kv) for folder in (main, draft))
    return hashlib.sha256(both.encode()).hexdigest()[:16]


def find_profile(
    profile: str | Path, main: ModelFolder, draft: ModelFolder, device: str, kv: KvBackend
) -> tuple[Path, Profile] | None:
    """The profile of a pair, and its file.

    profile: "auto" takes the one that `ov-specdec tune` wrote, if any, and warns if it cannot be
    read; "none" takes none; or a file. `OptionError` if that cannot be read, or belongs to another
    pair, machine or KV backend.
    """
    if profile == "none":
        return None
    pair = pair_fingerprint(main, draft, device, kv)
    path = record_file(pair) if profile == "auto" else Path(profile)
    if path is None or (profile == "auto" and not path.is_file()):
        return None
    try:
        found = read_profile(path)
        if found.pair != pair:
            other = "another pair of models, machine, KV backend or version of OpenVINO"
            problem = f"the profile '{path}' was made for {other}"
            raise OptionError(f"{problem}: run ov-specdec tune again")
    except OptionError as error:
        if profile != "auto":
            raise
        # The user did not name this file, so only warn.
        warnings.warn(f"{error}; going on without it", RuntimeWarning, stacklevel=2)
        return None
    return path, found
