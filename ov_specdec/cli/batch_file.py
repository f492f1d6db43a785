"""Answers a file of requests in OpenAI's batch format into a file of results, resuming it.

Source: the request input and output objects of OpenAI's Batch API.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ov_specdec.errors import OptionError
from ov_specdec.generation.batch import Batch
from ov_specdec.openai.answer import Ask
from ov_specdec.openai.body import Rules, explain
from ov_specdec.openai.completions import CompletionAnswer
from ov_specdec.openai.errors import NONE, ApiError, Json, from_exception, invalid
from ov_specdec.openai.requests import ChatBody, CompletionBody, GenerationBody, read_ask
from ov_specdec.pipeline import SpeculativePipeline

BODIES: dict[str, type[GenerationBody]] = {
    "/v1/chat/completions": ChatBody,
    "/v1/completions": CompletionBody,
}
"""The type of a request's body, by its url."""

RESULT_ID = "batch_req_"
"""Prefix of the ids of results, as in OpenAI's."""

AHEAD = 2
"""Open requests for each that runs: the next are ready, and a long file takes little memory."""

LINE_START = f'{{"id": "{RESULT_ID}'.encode()
"""The beginning of every line, as `Results.write` writes it."""


class BatchRequest(BaseModel):
    """A line of a file of requests, with its body unparsed."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    custom_id: Annotated[str, Field(min_length=1)]
    method: Literal["POST"]
    url: Literal["/v1/chat/completions", "/v1/completions"]
    body: Any = None

    def ask(self, rules: Rules | None = None) -> Ask:
        """Parse the body; `ApiError` for invalid or unsupported fields."""
        ask = read_ask(BODIES[self.url], self.body, rules)
        if ask.stream:
            raise invalid("stream", "stream=true has no effect in a batch: leave it out")
        return ask


def read_request(line: bytes) -> BatchRequest:
    """The request in a line: {"custom_id", "method": "POST", "url", "body"}; raises `ApiError`."""
    try:
        return BatchRequest.model_validate_json(line)
    except ValidationError as error:
        path, message, kind = explain(error)
        if kind == "json_invalid":
            message = f"the line is not JSON: {error.errors()[0]['ctx']['error']}"
        codes = {"json_invalid": "json", "extra_forbidden": "request", "model_type": "request"}
        raise invalid(path, message, f"invalid_{codes.get(kind, path)}") from error


def make_result(custom_id: str | None, **content: Any) -> dict[str, Any]:
    """A result. content: the response to a request, or the error of a line."""
    result_id = RESULT_ID + uuid4().hex
    return {"id": result_id, "custom_id": custom_id, "response": None, "error": None, **content}


def make_response(status_code: int, body: Json) -> dict[str, Any]:
    """The response to a request: an answer, or `ApiError.body`."""
    return {"status_code": status_code, "request_id": f"req_{uuid4().hex}", "body": body}


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
                    if not line.startswith(LINE_START[: len(line)]):
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

    def __str__(self) -> str:
        before = f"{self.skipped} answered before"
        if self.failed_before:
            before += f", {self.failed_before} of them with an error"
        return f"{self.answered} answered, {self.failed} failed, {before}"

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


@dataclass
class BatchRun:
    """Answers requests of a file; a failed one with its error. rules: how to read requests."""

    pipeline: SpeculativePipeline
    model_name: str
    max_batch_size: int
    rules: Rules = field(default_factory=Rules)

    def __post_init__(self) -> None:
        # Open requests, keyed by custom id, and by index of the choice too.
        self._batch: Batch[tuple[str, int]] = self.pipeline.open_batch()
        self._batch.try_grammars()
        self._answers: dict[str, CompletionAnswer] = {}

    def answer(self, lines: Iterable[bytes], results: Results) -> Iterator[None]:
        """Answer requests that `results` does not; yields after each result, in any order."""
        with self._batch:
            yield from map(results.write, self._results(lines, results))

    def _results(self, lines: Iterable[bytes], results: Results) -> Iterator[dict[str, Any]]:
        seen: set[str] = set()
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                request = read_request(line)
                if request.custom_id in seen:
                    problem = f"custom_id='{request.custom_id}' is that of an earlier line"
                    raise invalid("custom_id", problem, "duplicate_custom_id")
            except ApiError as error:
                if not results.skip(number):
                    complaint = {"code": error.code, "message": error.message, "line": number}
                    yield make_result(None, error=complaint)
                continue
            seen.add(request.custom_id)
            if not results.skip(request.custom_id):
                try:
                    self._begin(request)
                except Exception as error:
                    yield self._fail(request.custom_id, error)
            while len(self._batch) >= AHEAD * self.max_batch_size:
                yield from self._step()
        while self._batch:
            yield from self._step()

    def _begin(self, request: BatchRequest) -> None:
        ask, name = request.ask(self.rules), self.model_name
        if ask.model not in (None, name):
            problem = f"this run serves the model '{name}', not '{ask.model}'"
            remedy = "change the request, or give --served-model-name"
            raise ApiError(404, f"{problem}: {remedy}", "model", "model_not_found")
        self._answers[request.custom_id] = CompletionAnswer(ask, name, self.pipeline.tokenizer)
        for index, (prompt, options) in enumerate(ask.generations()):
            self._batch.add((request.custom_id, index), prompt, options)

    def _step(self) -> Iterator[dict[str, Any]]:
        """One step of all requests. Yields the results of those that have ended."""
        for (custom_id, index), piece in self._batch.step():
            answer = self._answers.get(custom_id)
            if answer is None:  # another choice of the request has failed
                continue
            if isinstance(piece, BaseException):
                yield self._fail(custom_id, piece)
                continue
            answer.choices[index].add(piece)
            if all(choice.ended for choice in answer.choices):
                del self._answers[custom_id]
                yield make_result(custom_id, response=make_response(200, answer.whole()))

    def _fail(self, custom_id: str, error: BaseException) -> dict[str, Any]:
        """The result of a failed request; ends its other choices."""
        answer = self._answers.pop(custom_id, None)
        for index in range(len(answer.choices) if answer else 0):
            self._batch.cancel((custom_id, index))
        failure = from_exception(error, custom_id, answer.ask.names if answer else NONE)
        if failure.status == 500:  # there is no log with the traceback
            failure = ApiError(500, f"{type(error).__name__}: {error}")
        return make_result(custom_id, response=make_response(failure.status, failure.body()))
