"""Profiles: the fastest measured settings of a pair on a machine, in a file."""

import errno
import hashlib
import json
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ov_specdec.checks import require_texts
from ov_specdec.errors import OptionError
from ov_specdec.files import UNREADABLE, replacing, user_cache
from ov_specdec.loading.devices import describe_machine
from ov_specdec.loading.folder import ModelFolder

VERSION = 1


@dataclass(frozen=True)
class Profile:
    """OpenVINO properties of both models, for one pair on one machine.

    pair: identifies pair and machine (see `fingerprint`). report: the measurements behind the
    choice.
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
        with _writing(path), replacing(path) as partial:
            partial.write_text(json.dumps(self.as_dict(), indent=2) + "\n", encoding="utf-8")


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
        raise OptionError(
            f"the profile '{path}' cannot be written ({error.strerror}): give another --output"
        ) from error


def read_profile(path: Path) -> Profile:
    """The profile in a file; `OptionError` if it cannot be read or has another format."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.pop("version") != VERSION:
            raise OptionError(f"the profile '{path}' has another format: run ov-specdec tune again")
        profile = Profile(**content)
        require_texts("main_properties", profile.main_properties)
        require_texts("draft_properties", profile.draft_properties)
        return profile
    except OptionError:
        raise
    except (OSError, *UNREADABLE) as error:
        raise OptionError(
            f"the profile '{path}' cannot be read ({error}): run ov-specdec tune again"
        ) from error


def fingerprint(main: ModelFolder, draft: ModelFolder, machine: str, kv: str) -> str:
    """A digest of both IRs, the machine (device, cores, OpenVINO version) and the KV backend."""
    digest = hashlib.sha256(f"{machine}\n{kv}".encode())
    for folder in (main, draft):
        digest.update(folder.ir.read_bytes())
        # The graph identifies a model; of the weights only the size counts.
        digest.update(str(folder.num_bytes).encode())
    return digest.hexdigest()[:16]


def find_profile(
    profile: str | Path, main: ModelFolder, draft: ModelFolder, device: str, kv: str
) -> tuple[Path, Profile] | None:
    """The profile of a pair, and its file.

    profile: "auto" takes the one that `ov-specdec tune` wrote, if any, and warns if it cannot be
    read; "none" takes none; or a file. `OptionError` if that cannot be read, or belongs to another
    pair, machine or KV backend.
    """
    if profile == "none":
        return None
    pair = fingerprint(main, draft, describe_machine(device), kv)
    if profile == "auto":
        return _find_written(pair)
    found = read_profile(Path(profile))
    if found.pair != pair:
        raise OptionError(
            f"the profile '{profile}' was made for another pair of models, machine, KV backend or "
            "version of OpenVINO: run ov-specdec tune again"
        )
    return Path(profile), found


def default_path(pair: str) -> Path | None:
    """Path of a pair's profile in the user's cache folder; None for a user without one."""
    cache = user_cache()
    return None if cache is None else cache / "profiles" / f"{pair}.json"


def _find_written(pair: str) -> tuple[Path, Profile] | None:
    """The profile that `ov-specdec tune` wrote into the user's cache folder."""
    path = default_path(pair)
    if path is None or not path.is_file():
        return None
    try:
        return path, read_profile(path)
    except OptionError as error:
        # The user did not name this file, so only warn.
        warnings.warn(f"{error}; going on without it", RuntimeWarning, stacklevel=2)
        return None
