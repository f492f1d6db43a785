"""A file of results, which a later run can resume, and the count of what is in it."""

import json
from pathlib import Path
from typing import IO, Any

from ov_specdec.errors import OptionError
from ov_specdec.openai.batches import RESULT_ID

BEGINNING = f'{{"id": "{RESULT_ID}'.encode()
"""The beginning of every line, as `Results.write` writes it."""


class Results:
    """A file of results: reads existing results, and appends new ones.

    Removes an incomplete last line of an interrupted run. Raises `OptionError` if a line is no
    result, and leaves the file unchanged.

    answered, failed: counts of requests of this run; skipped,
    failed_before: of those that the file answered before, and those with an error. tokens: of the
    answers. first_failure: the request that failed first, and why.
    """

    def __init__(self, path: Path) -> None:
        self.answered = self.failed = self.skipped = self.failed_before = self.tokens = 0
        self.first_failure = ""
        self._failed: dict[str | int, bool] = {}
        """Whether a result is an error, by custom id, or by line if that is no request."""
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

    def skip(self, key: str | int) -> bool:
        """Whether the file has the result of a request or line, which is then counted."""
        if key not in self._failed:
            return False
        self.skipped += 1
        self.failed_before += self._failed[key]
        return True

    def write(self, result: dict[str, Any]) -> None:
        """Append a result as one whole line."""
        self._file.write(json.dumps(result).encode() + b"\n")
        self._file.flush()
        if not self._note(result):
            self.answered += 1
            self.tokens += result["response"]["body"]["usage"]["completion_tokens"]
            return
        self.failed += 1
        if error := result["error"]:
            failure = f"line {error['line']}: {error['message']}"
        else:
            message = result["response"]["body"]["error"]["message"]
            failure = f"custom_id='{result['custom_id']}': {message}"
        self.first_failure = self.first_failure or failure

    def _note(self, result: dict[str, Any]) -> bool:
        """Note the request or line of a result. Returns whether it is an error."""
        key, response = result["custom_id"], result["response"]
        failed: bool = response is None or response["status_code"] != 200
        self._failed[result["error"]["line"] if key is None else key] = failed
        return failed

    def __enter__(self) -> "Results":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()
