"""`ov-specdec batch`: answer a file of requests in OpenAI's batch format, resuming it.

Source: the request input and output objects of OpenAI's Batch API.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product, starmap
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, Literal
from uuid import uuid4

import click
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ov_specdec.cli.app import end_interrupted
from ov_specdec.cli.declare import command, options_of, take
from ov_specdec.cli.models import PIPELINE, make_pipeline, model_name
from ov_specdec.cli.terminal import progress
from ov_specdec.errors import OptionError
from ov_specdec.generation.batch import Batch
from ov_specdec.openai.body import UnknownFields, read
from ov_specdec.openai.completions import CompletionAnswer
from ov_specdec.openai.errors import ApiError, Json, explain, from_exception, invalid
from ov_specdec.openai.requests import ChatBody, CompletionBody
from ov_specdec.options.model import option
from ov_specdec.pipeline import SpeculativePipeline, complete_request
from ov_specdec.server.settings import Settings

BODIES: dict[str, type[ChatBody | CompletionBody]] = {
    "/v1/chat/completions": ChatBody,
    "/v1/completions": CompletionBody,
}
"""The type of a request's body, by its url."""

Result = tuple[str | int, int, Json]
"""The custom id of a request or the number of a line, the status, and the body."""

RESULT_ID = "batch_req_"
"""Prefix of the ids of results, as in OpenAI's."""

LINE_START = f'{{"id": "{RESULT_ID}'.encode()
"""The beginning of every line, even of one that was interrupted."""


@command(
    "[MAIN] REQUESTS", options_of(Settings.model_fields, "strict_fields"), options_of(PIPELINE)
)
def batch(
    *,
    arguments: tuple[str, ...],
    output: Path = option(
        ..., "Append results to this file, and skip requests that it already answers."
    ),
    served_model_name: str | None = option(
        None, "Name of the model.", unset="its folder's name", metavar="NAME"
    ),
    strict_fields: bool,
    **options: Any,
) -> None:
    """Answer the requests in REQUESTS, a file in OpenAI's batch format.

    Each line is {"custom_id", "method": "POST", "url", "body"}, with /v1/completions or
    /v1/chat/completions as url. Results come in any order, with the custom_id of their request. The
    result of a failed request is its error, and the exit code is 1. After an interruption, the same
    command resumes.
    """
    pipeline = take(options, PIPELINE)
    requests, *others = map(Path, arguments)
    if others:
        raise OptionError(f"REQUESTS are {len(arguments)} files: give one")
    with requests.open("rb") as file:
        num_lines = sum(1 for line in file if line.strip())
    if output.exists() and output.samefile(requests):
        raise OptionError(f"--output '{output}' is the file of requests: give another file")
    name = served_model_name or model_name(pipeline["main"])
    results = Results(output)
    with make_pipeline(pipeline) as models:
        run = BatchRun(models, name, pipeline["max_batch_size"], UnknownFields(strict_fields))
        _answer(requests, num_lines, results, run)
    if results.failed or results.failed_before:
        sys.exit(1)


def _answer(requests: Path, num_lines: int, results: "Results", run: "BatchRun") -> None:
    start = perf_counter()
    try:
        with progress("Requests", num_lines) as update, requests.open("rb") as lines:
            for _ in run.answer(lines, results):
                update(completed=results.answered + results.failed + results.skipped)
    except KeyboardInterrupt:
        end_interrupted(f"interrupted: {results}")
    seconds, tokens = perf_counter() - start, results.tokens
    speed = f", {tokens} tokens in {seconds:.1f} s ({tokens / seconds:.1f} tokens/s)"
    if results.first_failure:
        click.echo(f"first error: {results.first_failure}", err=True)
    click.echo(f"{results}{speed if tokens else ''}", err=True)


class BatchRequest(BaseModel):
    """A line of a file of requests, with its body unparsed."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    custom_id: Annotated[str, Field(min_length=1)]
    method: Literal["POST"]
    url: Literal["/v1/chat/completions", "/v1/completions"]
    body: Any = None


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


def make_result(key: str | int, status: int, body: Json) -> Json:
    """The result of a request by its custom id, or of a line by its number.

    body: an answer, or `ApiError.body`.
    """
    head = {"id": RESULT_ID + uuid4().hex, "custom_id": None, "response": None, "error": None}
    if isinstance(key, int):
        told = {name: body["error"][name] for name in ("code", "message")}
        return {**head, "error": {**told, "line": key}}
    response = {"status_code": status, "request_id": f"req_{uuid4().hex}", "body": body}
    return {**head, "custom_id": key, "response": response}


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
        self._errors: dict[str | int, Json | None] = {}
        """The error of each result, if it is one, by custom id or line."""
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
                    response, error = result["response"], result["error"]
                    key = result["custom_id"] or error["line"]
                    self._errors[key] = response["body"].get("error") if response else error
                except (ValueError, KeyError, TypeError) as wrong:
                    problem = f"line {number} of --output '{path}' is not a result of a batch"
                    raise OptionError(f"{problem}: give another file") from wrong
                end += len(line)
            file.truncate(end)

    def skip(self, key: str | int) -> bool:
        """Whether the file has the result of a request or line, which is then counted."""
        self.skipped += key in self._errors
        self.failed_before += self._errors.get(key) is not None
        return key in self._errors

    def __str__(self) -> str:
        before = f"{self.skipped} answered before"
        if self.failed_before:
            before += f", {self.failed_before} of them with an error"
        return f"{self.answered} answered, {self.failed} failed, {before}"

    def write(self, key: str | int, status: int, body: Json) -> None:
        """Append a `Result` as one whole line."""
        with self._path.open("ab") as file:
            file.write(json.dumps(make_result(key, status, body)).encode() + b"\n")
        if "error" not in body:
            self.answered += 1
            self.tokens += body["usage"]["completion_tokens"]
            return
        self.failed += 1
        where = f"line {key}" if isinstance(key, int) else f"custom_id='{key}'"
        self.first_failure = self.first_failure or f"{where}: {body['error']['message']}"


@dataclass
class BatchRun:
    """Answers requests of a file; a failed one with its error."""

    pipeline: SpeculativePipeline
    model_name: str
    max_batch_size: int
    unknown: UnknownFields = field(default_factory=UnknownFields)

    def __post_init__(self) -> None:
        # Open requests, keyed by custom id, and by index of the choice too.
        self._batch: Batch[tuple[str | int, int]] = self.pipeline.open_batch()
        self._batch.try_grammars()
        self._answers: dict[str | int, CompletionAnswer] = {}

    def answer(self, lines: Iterable[bytes], results: Results) -> Iterator[None]:
        """Answer requests that `results` does not; yields after each result, in any order."""
        with self._batch:
            yield from starmap(results.write, self._results(lines, results))

    def _results(self, lines: Iterable[bytes], results: Results) -> Iterator[Result]:
        seen: set[str] = set()
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            key: str | int = number
            try:
                request = read_request(line)
                if request.custom_id in seen:
                    problem = f"custom_id='{request.custom_id}' is that of an earlier line"
                    raise invalid("custom_id", problem, "duplicate_custom_id")
                key = request.custom_id
                seen.add(key)
                if not results.skip(key):
                    self._begin(request)
            except Exception as error:
                if isinstance(key, str) or not results.skip(key):
                    yield self._fail(key, error)
            # As many again are ready to run, and a long file takes little memory.
            while len(self._batch) >= 2 * self.max_batch_size:
                yield from self._step()
        while self._batch:
            yield from self._step()

    def _begin(self, request: BatchRequest) -> None:
        ask, name = read(BODIES[request.url], request.body, self.unknown), self.model_name
        if ask.stream:
            raise invalid("stream", "stream=true has no effect in a batch: leave it out")
        if ask.model not in (None, name):
            problem = f"this run serves the model '{name}', not '{ask.model}'"
            remedy = "change the request, or give --served-model-name"
            raise ApiError(404, f"{problem}: {remedy}", "model", "model_not_found")
        self._answers[request.custom_id] = CompletionAnswer(ask, name, self.pipeline.tokenizer)
        options = complete_request(self.pipeline, ask.options)
        choices = [options.copy_with(choice=choice) for choice in range(ask.choices_per_prompt)]
        for index, (prompt, own) in enumerate(product(ask.prompts, choices)):
            self._batch.add((request.custom_id, index), prompt, own)

    def _step(self) -> Iterator[Result]:
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
                yield custom_id, 200, answer.whole()

    def _fail(self, key: str | int, error: BaseException) -> Result:
        """The result of a failed request or line; ends its other choices."""
        answer = self._answers.pop(key, None)
        for index in range(len(answer.choices) if answer else 0):
            self._batch.cancel((key, index))
        failure = from_exception(error, str(key), answer.ask.names if answer else None)
        if failure.status == 500:  # there is no log with the traceback
            failure = ApiError(500, f"{type(error).__name__}: {error}")
        return key, failure.status, failure.body()
