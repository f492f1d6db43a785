"""`ov-specdec batch`: answer a file of requests in OpenAI's batch format, resuming it.

Source: the request input and output objects of OpenAI's Batch API.
"""

import json
import sys
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, Literal
from uuid import uuid4

import click
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from ov_specdec.api.answer import Answer
from ov_specdec.api.body import GenerationBody, UnknownFields, read
from ov_specdec.api.dialect import Dialect, Generating, check_model
from ov_specdec.api.errors import FIELDS, ApiError, explain, from_exception, invalid
from ov_specdec.cli.app import end_interrupted
from ov_specdec.cli.declare import command, options_of, take
from ov_specdec.cli.options import PIPELINE, make_pipeline, model_name
from ov_specdec.cli.terminal import progress
from ov_specdec.dialects import DIALECTS
from ov_specdec.errors import OptionError, shorten
from ov_specdec.generation.batch import Batch
from ov_specdec.options.model import option
from ov_specdec.pipeline import SpeculativePipeline, complete_request
from ov_specdec.server.settings import Settings

GENERATING = {
    url: (dialect, post)
    for dialect in DIALECTS
    for url, post in dialect.posts.items()
    if isinstance(post, Generating) and issubclass(post.body, GenerationBody)
}
"""What takes a request and answers it, and its dialect, by url."""

LINE_START = b'{"id": "batch_req_'
"""The beginning of every line of results, even of one that was interrupted."""


@command(
    "[MAIN] REQUESTS",
    options_of(Settings.model_fields, "served_model_name", "strict_fields", served_model_name=()),
    options_of(PIPELINE),
)
def batch(
    *,
    arguments: tuple[str, ...],
    output: Path = option(
        ..., "Append results to this file, and skip requests that it already answers."
    ),
    served_model_name: tuple[str, ...],
    strict_fields: bool,
    **options: Any,
) -> None:
    """Answer the requests in REQUESTS, a file in OpenAI's batch format.

    Each line is {"custom_id", "method": "POST", "url", "body"}, with a path of the
    server that generates text as url, such as /v1/chat/completions. Results come in any order, with
    the custom_id of their request. The result of a failed request is its error, and the exit code
    is 1. After an interruption, the same command resumes.
    """
    pipeline, (file, *others) = take(options, PIPELINE), map(Path, arguments)
    if others:
        raise OptionError(f"REQUESTS are {len(arguments)} files: give one")
    num_requests = sum(1 for _ in read_requests(file))  # refuses bad lines before models are loaded
    if output.exists() and output.samefile(file):
        raise OptionError(f"--output '{output}' is the file of requests: give another file")
    results = Results(output)
    names = served_model_name or (model_name(pipeline["main"]),)
    with make_pipeline(pipeline) as models, progress("Requests", num_requests) as update:
        run = BatchRun(models, names, pipeline["max_batch_size"], UnknownFields(strict_fields))
        start = perf_counter()
        try:
            for _ in run.answer(read_requests(file), results):
                update(completed=results.answered + results.failed + results.skipped)
        except KeyboardInterrupt:
            end_interrupted(f"interrupted: {results}")
        seconds, tokens = perf_counter() - start, results.tokens
    speed = f", {tokens} tokens in {seconds:.1f} s ({tokens / seconds:.1f} tokens/s)"
    if results.first_failure:
        click.echo(f"first error: {results.first_failure}", err=True)
    click.echo(f"{results}{speed if tokens else ''}", err=True)
    if results.failed or results.failed_before:
        sys.exit(1)


def _check_url(url: str) -> str:
    if url not in GENERATING:
        raise PydanticCustomError("url", "must be {known}", {"known": " or ".join(GENERATING)})
    return url


class BatchRequest(BaseModel):
    """A line of a file of requests, with its body unparsed."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    custom_id: Annotated[str, Field(min_length=1)]
    method: Literal["POST"]
    url: Annotated[str, AfterValidator(_check_url)]
    body: Any = None


def read_requests(file: Path) -> Iterator[BatchRequest]:
    """The requests in a file; `OptionError` names a line that is none, or has an earlier id."""
    seen = set[str]()
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not (line := line.removeprefix(BOM_UTF8).strip()):
                continue
            try:
                request = BatchRequest.model_validate_json(line)
            except ValidationError as error:
                _, problem, _ = explain(error)
                raise OptionError(f"line {number} of '{file}' is no request: {problem}") from error
            if request.custom_id in seen:
                name = f"custom_id={shorten(request.custom_id)}"
                raise OptionError(f"line {number} of '{file}' repeats {name}: give each its own")
            seen.add(request.custom_id)
            yield request


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
        self._has_error: dict[str, bool] = {}
        """Of earlier results, by custom id."""
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
                    self._has_error[result["custom_id"]] = result["response"]["status_code"] >= 400
                except (ValueError, KeyError, TypeError) as wrong:
                    problem = f"line {number} of --output '{path}' is not a result of a batch"
                    raise OptionError(f"{problem}: give another file") from wrong
                end += len(line)
            file.truncate(end)

    def skip(self, custom_id: str) -> bool:
        """Whether the file has the result of a request, which is then counted."""
        self.skipped += custom_id in self._has_error
        self.failed_before += self._has_error.get(custom_id, False)
        return custom_id in self._has_error

    def __str__(self) -> str:
        before = f"{self.skipped} answered before"
        if self.failed_before:
            before += f", {self.failed_before} of them with an error"
        return f"{self.answered} answered, {self.failed} failed, {before}"

    def note(self, custom_id: str, answer: Answer[Any]) -> None:
        """Append an answer."""
        self._write(custom_id, 200, answer.whole())
        self.answered += 1
        self.tokens += sum(len(choice.token_ids) for choice in answer.choices)

    def fail(self, custom_id: str, dialect: Dialect, error: ApiError) -> None:
        """Append an error."""
        self._write(custom_id, error.status, dialect.error(error))
        self.failed += 1
        self.first_failure = self.first_failure or f"custom_id='{custom_id}': {error}"

    def _write(self, custom_id: str, status: int, body: Any) -> None:
        """Append a result as one whole line."""
        response = {"status_code": status, "request_id": f"req_{uuid4().hex}", "body": body}
        head = {"id": f"batch_req_{uuid4().hex}", "custom_id": custom_id}
        with self._path.open("ab") as file:
            file.write(json.dumps({**head, "response": response, "error": None}).encode() + b"\n")


@dataclass
class BatchRun:
    """Answers requests; failed ones with errors. names: of the model; answers have the first."""

    pipeline: SpeculativePipeline
    names: Sequence[str]
    max_batch_size: int
    unknown: UnknownFields = field(default_factory=UnknownFields)

    def __post_init__(self) -> None:
        # Open requests, keyed by custom id, and by index of the choice too.
        self._batch: Batch[tuple[str, int]] = self.pipeline.open_batch()
        self._batch.try_grammars()
        self._answers: dict[str, tuple[Dialect, Answer[Any]]] = {}

    def answer(self, requests: Iterable[BatchRequest], results: Results) -> Iterator[None]:
        """Answer requests that `results` does not, in any order; yields after each step."""
        with self._batch:
            for request in requests:
                if results.skip(request.custom_id):
                    continue
                try:
                    self._begin(request)
                except Exception as error:
                    self._fail(request.custom_id, GENERATING[request.url][0], error, results)
                # As many again are ready to run, and a long file takes little memory.
                while len(self._batch) >= 2 * self.max_batch_size:
                    self._step(results)
                    yield
            while self._batch:
                self._step(results)
                yield

    def _begin(self, request: BatchRequest) -> None:
        (dialect, post), name = GENERATING[request.url], self.names[0]
        ask: Any = read(post.body, request.body, self.unknown)
        if ask.stream:
            raise invalid("stream", "stream=true has no effect in a batch: leave it out")
        if not ask.num_choices:
            raise invalid(None, "the request has no prompt: give one")
        check_model(ask.model, self.names)
        answer = post.answer(ask, name, self.pipeline.tokenizer)
        self._answers[request.custom_id] = dialect, answer
        options = complete_request(self.pipeline, ask.options)
        choices = [options.copy_with(choice=choice) for choice in range(ask.choices_per_prompt)]
        for index, (prompt, own) in enumerate(product(ask.prompts, choices)):
            self._batch.add((request.custom_id, index), prompt, own)

    def _step(self, results: Results) -> None:
        """One step of all requests; writes the results of those that end in it."""
        for (custom_id, index), piece in self._batch.step():
            if custom_id not in self._answers:  # another choice of the request has failed
                continue
            dialect, answer = self._answers[custom_id]
            if isinstance(piece, BaseException):
                self._fail(custom_id, dialect, piece, results)
                continue
            answer.note(index, piece)
            if all(choice.ended for choice in answer.choices):
                del self._answers[custom_id]
                results.note(custom_id, answer)

    def _fail(
        self, custom_id: str, dialect: Dialect, error: BaseException, results: Results
    ) -> None:
        """Write the error of a request; ends its other choices."""
        _, answer = self._answers.pop(custom_id, (dialect, None))
        for index in range(len(answer.choices) if answer else 0):
            self._batch.cancel((custom_id, index))
        failure = from_exception(error, custom_id, answer.request.names if answer else FIELDS)
        if failure.status == 500:  # there is no log with the traceback
            failure = ApiError(500, f"{type(error).__name__}: {error}")
        results.fail(custom_id, dialect, failure)
