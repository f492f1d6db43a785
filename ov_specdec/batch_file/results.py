"""A file of results, which a later run can resume."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import IO, Any

from ov_specdec.errors import OptionError
from ov_specdec.files import replacing
from ov_specdec.openai.batches import RESULT_ID, BatchRequest

BEGINNING = f'{{"id": "{RESULT_ID}'.encode()
"""The beginning of every line, as `Results.write` writes it."""


def is_failure(result: dict[str, Any]) -> bool:
    """Whether a result is an error."""
    return result["response"] is None or result["response"]["status_code"] != 200


def describe_failure(result: dict[str, Any]) -> str:
    """The request or line of a failed result, and its error."""
    if result["response"] is None:
        error = result["error"]
        return f"line {error['line']}: {error['message']}"
    message = result["response"]["body"]["error"]["message"]
    return f"custom_id='{result['custom_id']}': {message}"


class Results:
    """A file of results: reads existing results, and appends new ones.

    Removes an incomplete last line of an interrupted run. Raises `OptionError` if a line is no
    result, and leaves the file unchanged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._digests: dict[str, str] = {}
        """Digests of answered requests, by custom id."""
        self._failed: set[str | int] = set()
        """Custom ids with an error, and numbers of lines that are no requests."""
        self._file: IO[bytes] = path.open("ab+")
        self._file.seek(0)
        end = 0
        for number, line in enumerate(self._file, 1):
            try:
                if line[: len(BEGINNING)] != BEGINNING[: len(line)]:
                    raise ValueError("the id is not that of a result")
                if not line.endswith(b"\n"):
                    break
                self._note(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                self._file.close()
                raise OptionError(
                    f"line {number} of --output '{path}' is not a result of a batch: give another "
                    "file"
                ) from error
            end += len(line)
        self._file.truncate(end)

    def digest_of(self, request: BatchRequest) -> str | None:
        """The digest of the answered request with this id; None if there is none."""
        return self._digests.get(request.custom_id)

    def remove(self, custom_ids: Collection[str]) -> None:
        """Remove the results of some requests; an interruption loses no others."""
        self._file.seek(0)
        kept = [line for line in self._file if json.loads(line)["custom_id"] not in custom_ids]
        with replacing(self._path) as copy:
            copy.write_bytes(b"".join(kept))
            self._file.close()
        self._file = self._path.open("ab+")
        for custom_id in custom_ids:
            del self._digests[custom_id]
            self._failed.discard(custom_id)

    def has_failed(self, key: str | int) -> bool:
        """Whether the file has an error for this custom id, or for a line that is no request."""
        return key in self._failed

    def write(self, result: dict[str, Any]) -> None:
        """Append a result as one whole line."""
        self._file.write(json.dumps(result).encode() + b"\n")
        self._file.flush()
        self._note(result)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> "Results":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _note(self, result: dict[str, Any]) -> None:
        key = result["custom_id"]
        if key is None:
            key = result["error"]["line"]
        else:
            self._digests[key] = result["id"].removeprefix(RESULT_ID)
        if is_failure(result):
            self._failed.add(key)
