"""`EngineClient`, which runs the generations of requests, and the one in this process."""

import logging
from asyncio import Semaphore
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from itertools import product
from math import inf
from time import monotonic
from typing import Any, Literal, Protocol
from weakref import WeakValueDictionary

from prometheus_client import Metric

from ov_specdec.api.body import GenerationBody
from ov_specdec.api.dialect import Served
from ov_specdec.api.errors import ApiError
from ov_specdec.engine.output import Reader
from ov_specdec.engine.sequence import Sequence
from ov_specdec.errors import BusyError
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.pipeline import SpeculativePipeline, complete_request
from ov_specdec.results.chunks import Chunk
from ov_specdec.server.limits import limit_work
from ov_specdec.server.metrics import Metrics
from ov_specdec.server.settings import Settings
from ov_specdec.server.stream import Stream, run_in_thread

log = logging.getLogger("ov_specdec.server")

InputKind = Literal["text", "recordings"]

STEP_TIMEOUT = 60.0
"""Seconds after which a step counts as hung."""

MAX_TRIALS = 4
"""Requests whose grammars are tried at the same time: hostile ones take seconds, and a thread. Of
one tenant there is one less, so that others need not wait."""

TRIAL_WAIT = 10.0
"""Seconds after which no trial begins for a request."""


class EngineClient(Protocol):
    """Runs the generations of requests, for which the service has slots.

    input_kind: of requests. model: what is served. max_running: maximum concurrent generations.
    """

    input_kind: InputKind
    model: Served
    max_running: int

    def running(
        self, request: Any, tenant: str | None, stream: Stream[Any]
    ) -> AbstractAsyncContextManager[None]:
        """Queue the generations of a request; leaving the context cancels unfinished ones.

        tenant: has a fair share of the batch, and cached prefixes of its own. stream: gets the
        admission of the first generation and the chunks of all, or the first error. Raises errors
        of the request on entering.
        """

    async def check_health(self) -> None:
        """Raise `ApiError` unless it makes progress."""

    async def collect_metrics(self) -> list[Metric]:
        """Its metrics."""

    def close(self) -> None:
        """Free its resources. May wait."""


class LocalEngine:
    """An engine in this process: a pipeline and its thread.

    replica: its name in a cluster, for the metrics.
    """

    input_kind: InputKind = "text"

    def __init__(
        self, pipeline: SpeculativePipeline, settings: Settings, replica: str | None = None
    ) -> None:
        self.pipeline = pipeline
        self.generator = pipeline.background(
            lambda error: log.error(
                "a step failed, and with it all running requests", exc_info=error
            )
        )
        self.generator.texts.grammars.try_first()
        main, self._settings = pipeline.main, settings
        self.model = Served(
            settings.served_model_name,
            settings.max_request_tokens,
            pipeline.tokenizer,
            main.folder.model_type,
            main.runner.max_length,
            pipeline.batch_invariant,
            self.generator.texts.parsers,
        )
        self.max_running = self.generator.loop.engine.scheduler.limits.max_batch_size
        self.metrics = Metrics(settings.model_name, replica)
        self.metrics.watch(self.generator.loop, main.runner, self.model.max_length)
        self.metrics["batch_invariant"].set(pipeline.batch_invariant.is_verified)
        self._trials = Semaphore(MAX_TRIALS)
        self._trials_of = WeakValueDictionary[str | None, Semaphore]()

    @asynccontextmanager
    async def running(
        self, request: GenerationBody, tenant: str | None, stream: Stream[Chunk]
    ) -> AsyncIterator[None]:
        """See `EngineClient`."""
        loop, given = self.generator.loop, (request, tenant, stream)
        try:
            sequences = await run_in_thread(partial(self._check, *given, -inf))
        except BusyError:  # its grammar is new
            owner = request.options.cache_salt if tenant is None else tenant
            own = self._trials_of.setdefault(owner, Semaphore(MAX_TRIALS - 1))
            until = monotonic() + TRIAL_WAIT
            async with own, self._trials:
                sequences = await run_in_thread(partial(self._check, *given, until))
        try:
            for sequence in sequences:
                loop.add(sequence)
            yield
        finally:
            for sequence in sequences:
                loop.cancel(sequence)

    def complete(self, options: GenerationOptions, tenant: str | None) -> GenerationOptions:
        """Options with all defaults. tenant: namespace of cached prefixes."""
        length, salt = options.max_new_tokens, join_salt(tenant, options.cache_salt)
        length = self._settings.default_max_tokens if length is None else length
        given = options.copy_with(max_new_tokens=length, cache_salt=salt)
        return complete_request(self.pipeline, given)

    @property
    def defaults(self) -> str:
        """What requests get that leave their options out, as far as Python's defaults differ."""
        usual = GenerationOptions()
        values = self.complete(usual, None)
        return ", ".join(f"{k}={v}" for k, v in values if v != getattr(usual, k))

    async def check_health(self) -> None:
        """Raise `ApiError` unless the thread runs, and its current step makes progress."""
        loop = self.generator.loop
        if not loop.is_alive or loop.step_seconds > STEP_TIMEOUT:
            raise stalled()

    async def collect_metrics(self) -> list[Metric]:
        """Its metrics."""
        return list(self.metrics.registry.collect())

    def close(self) -> None:
        """Free the models."""
        self.pipeline.close()
        self.generator.loop.join(STEP_TIMEOUT)

    def _check(
        self, request: GenerationBody, tenant: str | None, stream: Stream[Chunk], until: float
    ) -> list[Sequence]:
        """The sequences of a request, ready to run. Too slow for the event loop.

        until: see `Grammars.compile`.
        """
        options = self.complete(request.options, tenant)
        prompts, context, most = [], self.model.max_length, self.model.most
        for prompt in request.prompts:
            prompts.append(self.generator.prompts.encode(prompt, options))
            lengths = [*map(len, prompts)]  # are checked before the next is encoded
            limit = limit_work(request, options.max_new_tokens, lengths, context, most)
        if limit != options.max_new_tokens:
            options = self.complete(request.options.copy_with(max_new_tokens=limit), tenant)
        choices = [options.copy_with(choice=index) for index in range(request.choices_per_prompt)]
        return [
            # The first has compiled the grammar of all. A key has one share, whatever the salts.
            self._check_one(ids, own, stream, index, tenant, inf if index and until > 0 else until)
            for index, (ids, own) in enumerate(product(prompts, choices))
        ]

    def _check_one(
        self,
        ids: list[int],
        options: GenerationOptions,
        stream: Stream[Chunk],
        index: int,
        tenant: str | None,
        until: float,
    ) -> Sequence:
        def receive(chunks: list[Chunk]) -> None:
            self.metrics.received(sequence.output, chunks)
            stream.put(index, chunks)

        def end(error: BaseException | None) -> None:
            reason = sequence.finish_reason if error is None else None
            self.metrics.ended(sequence.output.stats, reason)
            stream.end(error)

        reader = Reader(stream.admit, receive, end)
        sequence = self.generator.begin(ids, options, reader, tenant, until)
        return sequence


def join_salt(tenant: str | None, salt: str | None) -> str | None:
    """The namespace of a request's cached prefixes: its salt, within its tenant.

    A salt thus separates requests of one tenant, and gives no access to another tenant's prefixes.
    """
    if tenant is None:
        return salt
    return tenant if salt is None else f"{tenant}/{salt}"


def stalled() -> ApiError:
    """The answer of `/health` while a step hangs."""
    return ApiError(503, "the engine makes no progress", code="engine_stalled")
