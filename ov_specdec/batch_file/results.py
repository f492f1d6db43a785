"""A file of results, which a later run can resume, and the count of what is in it."""

import json
from pathlib import Path
from typing import Any

from ov_specdec.errors import OptionError
from ov_specdec.openai.batches import RESULT_ID

BEGINNING = f'{{"id": "{RESULT_ID}'.encode()
"""The beginning of every line, as `Results.write` writes it."""


class Results:
    """A file of results: reads existing results, and appends new ones.

    Removes an incomplete last line of an interrupted run. Raises `OptionError` if a line is no
    result, and leaves the file unchanged.

    answered, failed, tokens: of this run. skipped, failed_before: requests that the file answered
    before, and those with an error. first_failure: the request that failed first, and why.
    """

    def __init__(self, path: Path) -> None:
        self.answered = self.failed = self.skipped = self.failed_before = self.tokens = 0
        self.first_failure = ""
        self._path = path
        self._failed: dict[str | int, bool] = {}
        """Whether a result is an error, by custom id, or by line if that is no request."""
        end = 0
        with path.open("ab+") as file:
            file.seek(0)
            for number, line in enumerate(file, 1):
                try:
                    if not line.startswith(BEGINNING[: len(line)]):
                        raise ValueError("the id is not that of a result")
                    if not line.endswith(b"\n"):
                        break
                    result = json.loads(line)
                    self._failed[result["custom_id"] or result["error"]["line"]] = _is_error(result)
                except (ValueError, KeyError, TypeError) as error:
                    problem = f"line {number} of --output '{path}' is not a result of a batch"
                    raise OptionError(f"{problem}: give another file") from error
                end += len(line)
            file.truncate(end)

    def skip(self, key: str | int) -> bool:
        """Whether the file has the result of a request or line, which is then counted."""
        self.skipped += key in self._failed
        self.failed_before += self._failed.get(key, False)
        return key in self._failed

    def write(self, result: dict[str, Any]) -> None:
        """Append a result as one whole line."""
        with self._path.open("ab") as file:
            file.write(json.dumps(result).encode() + b"\n")
        if not _is_error(result):
            self.answered += 1
            self.tokens += result["response"]["body"]["usage"]["completion_tokens"]
            return
        self.failed += 1
        error = result["error"] or result["response"]["body"]["error"]
        where = f"line {error['line']}" if result["error"] else f"custom_id='{result['custom_id']}'"
        self.first_failure = self.first_failure or f"{where}: {error['message']}"


def _is_error(result: dict[str, Any]) -> bool:
    return result["response"] is None or result["response"]["status_code"] != 200
