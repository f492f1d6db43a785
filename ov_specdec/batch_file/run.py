"""Answers the requests of a file concurrently."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ov_specdec.batch import Batch
from ov_specdec.batch_file.digests import digest
from ov_specdec.batch_file.results import Results, describe_failure, is_failure
from ov_specdec.chunks import Chunk, collect
from ov_specdec.openai import Answer, ApiError, from_exception, make_body
from ov_specdec.openai.batches import (
    BatchRequest,
    LineError,
    make_failure,
    make_line_failure,
    make_result,
    read_request,
)
from ov_specdec.openai.body import Rules
from ov_specdec.pipeline import SpeculativePipeline

AHEAD = 2
"""Open requests, as a multiple of those that run at a time: the next ones are ready when there is
room, and a file of any length takes little memory."""


@dataclass(frozen=True)
class Serving:
    """The common settings of all requests of a file.

    rules: how to read requests. settings: other values that affect the answers, as JSON.
    """

    pipeline: SpeculativePipeline
    model_name: str
    max_batch_size: int
    rules: Rules = field(default_factory=Rules)
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Tally:
    """Counts of requests that were answered, failed, or answered before; with an error or not.

    first_failure: the request that failed first, and why.
    """

    answered: int = 0
    failed: int = 0
    skipped: int = 0
    failed_before: int = 0
    tokens: int = 0
    first_failure: str = ""

    def add(self, result: dict[str, Any]) -> None:
        """Count a result."""
        if is_failure(result):
            self.failed += 1
            self.first_failure = self.first_failure or describe_failure(result)
            return
        self.answered += 1
        self.tokens += result["response"]["body"]["usage"]["completion_tokens"]

    def skip(self, *, has_failed: bool) -> None:
        """Count a request that an earlier run answered. has_failed: with an error."""
        self.skipped += 1
        self.failed_before += has_failed


@dataclass
class _Pending:
    """An open request, with its choices so far."""

    request: BatchRequest
    answer: Answer
    chunks: list[list[Chunk]]
    left: int = field(init=False)

    def __post_init__(self) -> None:
        self.left = len(self.chunks)


def answer_lines(
    lines: Iterable[bytes],
    results: Results,
    serving: Serving,
    tally: Tally,
    step: Callable[[Tally], None],
) -> None:
    """Answer requests concurrently; results are written as requests end, in any order.

    lines: of a file of requests. Skips empty lines, and requests that `results` already answers.
    The result of a failed request is its error, and the others continue. tally: counts the
    requests. step: called with it after each.
    """
    with serving.pipeline.open_batch() as batch:
        run = _Run(batch, serving)
        for found in run.answer(_read(lines, results, tally)):
            results.write(found)
            tally.add(found)
            step(tally)


def _read(
    lines: Iterable[bytes], results: Results, tally: Tally
) -> Iterator[BatchRequest | dict[str, Any]]:
    """The unanswered requests; for an invalid line, its result."""
    seen: set[str] = set()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            request = read_request(line)
            if request.custom_id in seen:
                complaint = f"custom_id='{request.custom_id}' is that of an earlier line"
                raise LineError("duplicate_custom_id", complaint)
        except LineError as error:
            if results.has_failed(number):
                tally.skip(has_failed=True)
            else:
                yield make_line_failure(number, error)
            continue
        seen.add(request.custom_id)
        if results.digest_of(request) is not None:
            tally.skip(has_failed=results.has_failed(request.custom_id))
        else:
            yield request


class _Run:
    """Open requests of a batch, keyed by custom id and index of the choice."""

    def __init__(self, batch: Batch[tuple[str, int]], serving: Serving) -> None:
        self._batch = batch
        self._serving = serving
        self._pending: dict[str, _Pending] = {}

    def answer(self, requests: Iterable[BatchRequest | dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The results of requests, as they end; results in the input come at once."""
        for request in requests:
            if isinstance(request, BatchRequest):
                try:
                    self._begin(request)
                except Exception as error:
                    yield self._fail(request, error)
            else:
                yield request
            while len(self._batch) >= AHEAD * self._serving.max_batch_size:
                yield from self._step()
        while self._batch:
            yield from self._step()

    def _begin(self, request: BatchRequest) -> None:
        ask = request.ask(self._serving.rules)
        if ask.model not in (None, self._serving.model_name):
            raise ApiError(
                404,
                f"this run serves the model '{self._serving.model_name}', not '{ask.model}': "
                "change the request, or give --served-model-name",
                "model",
                "model_not_found",
            )
        generations = ask.generations()
        answer = Answer.begin(ask, self._serving.model_name, self._serving.pipeline.tokenizer)
        self._pending[request.custom_id] = _Pending(request, answer, [[] for _ in generations])
        for index, (prompt, options) in enumerate(generations):
            self._batch.add((request.custom_id, index), prompt, **options)

    def _step(self) -> Iterator[dict[str, Any]]:
        """One step of all requests. Yields the results of those that have ended."""
        for (custom_id, index), piece in self._batch.step():
            pending = self._pending.get(custom_id)
            if pending is None:  # another choice of the request has failed
                continue
            if isinstance(piece, BaseException):
                yield self._fail(pending.request, piece)
                continue
            pending.chunks[index].append(piece)
            pending.left -= piece.finish_reason is not None
            if pending.left == 0:
                del self._pending[custom_id]
                body = make_body(pending.answer, [collect(chunks) for chunks in pending.chunks])
                yield make_result(custom_id, self._digest(pending.request), 200, body)

    def _fail(self, request: BatchRequest, error: BaseException) -> dict[str, Any]:
        """The result of a failed request; ends its other choices."""
        custom_id = request.custom_id
        pending = self._pending.pop(custom_id, None)
        for index in range(len(pending.chunks) if pending else 0):
            self._batch.cancel((custom_id, index))
        failure = from_exception(error, custom_id)
        if failure.status == 500:  # there is no log with the traceback
            failure = ApiError(500, f"{type(error).__name__}: {error}")
        return make_failure(custom_id, self._digest(request), failure)

    def _digest(self, request: BatchRequest) -> str:
        return digest(request, self._serving.settings)
