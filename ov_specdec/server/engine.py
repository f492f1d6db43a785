"""`EngineClient`, which runs the generations of requests, and the one in this process."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import product
from typing import Any, Protocol

from prometheus_client import Metric

from ov_specdec.chunks import Chunk
from ov_specdec.generation import Generation
from ov_specdec.openai import ApiError, Ask
from ov_specdec.options import GenerationOptions
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.server.about import About, about_text
from ov_specdec.server.metrics import Metrics, Timer
from ov_specdec.server.salts import join_salt
from ov_specdec.server.settings import Settings
from ov_specdec.server.stream import Stream
from ov_specdec.server.threads import run_in_thread
from ov_specdec.server.work import limit_work
from ov_specdec.stats import BatchInvariance
from ov_specdec.text.tokenizer import Tokenizer

log = logging.getLogger("ov_specdec.server")

DEFAULT_TEMPERATURE = 1.0
"""Default temperature, unless the model recommends one."""

Admission = Callable[[], Awaitable[None]]
"""Waits until a request may run; raises `ApiError` if that takes too long."""


class EngineClient(Protocol):
    """Runs the generations that the service has admitted."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The main model's tokenizer."""
        ...

    @property
    def max_length(self) -> int:
        """Maximum tokens of prompt and output."""
        ...

    @property
    def batch_invariant(self) -> BatchInvariance:
        """Whether the main model's logits are bitwise the same in any pass."""
        ...

    @property
    def about(self) -> About:
        """The description of the model."""
        ...

    def running(
        self, ask: Ask, tenant: str | None, stream: Stream[Chunk], admission: Admission
    ) -> AbstractAsyncContextManager[None]:
        """Run the generations of a request; leaving the context cancels unfinished ones.

        tenant: namespace of cached prefixes. stream: gets their chunks, or the first error.
        admission: awaited before they run, after the checks of the request. Raises errors of the
        request on entering.
        """
        ...

    async def check_health(self) -> None:
        """Raise `ApiError` unless it makes progress."""
        ...

    async def collect_metrics(self) -> list[Metric]:
        """Its metrics."""
        ...

    def close(self) -> None:
        """Free its resources. May wait."""
        ...


class LocalEngine:
    """An engine in this process: a pipeline and its thread.

    replica: its name in a cluster, for the metrics.
    """

    def __init__(
        self, pipeline: SpeculativePipeline, settings: Settings, replica: str | None = None
    ) -> None:
        self.pipeline = pipeline
        self.generator = pipeline.background(_report)
        self.metrics = Metrics(settings.model_name, replica)
        self.metrics.watch(self.generator.loop.engine.scheduler, self.generator.main)
        size = self.generator.main.capacity or 0
        self.metrics.describe_cache(kv_cache_size_tokens=size, max_model_len=self.max_length)
        self.metrics.batch_invariant.set_function(lambda: pipeline.batch_invariant.is_proven)
        self._settings = settings

    @property
    def tokenizer(self) -> Tokenizer:
        """The main model's tokenizer."""
        return self.pipeline.tokenizer

    @property
    def max_length(self) -> int:
        """Maximum tokens of prompt and output."""
        return self.pipeline.main.runner.max_length

    @property
    def batch_invariant(self) -> BatchInvariance:
        """See `EngineClient`."""
        return self.pipeline.batch_invariant

    @property
    def about(self) -> About:
        """See `EngineClient`."""
        return about_text(self.pipeline)

    @asynccontextmanager
    async def running(
        self, ask: Ask, tenant: str | None, stream: Stream[Chunk], admission: Admission
    ) -> AsyncIterator[None]:
        """See `EngineClient`."""
        generations = await run_in_thread(lambda: self._check(ask, tenant, stream))
        await admission()
        try:
            for generation, timer in generations:
                timer.begin()
                self.generator.loop.add(generation.sequence)
            yield
        finally:
            for generation, _ in generations:
                self.generator.loop.cancel(generation.sequence)

    def complete(self, options: dict[str, Any], tenant: str | None) -> GenerationOptions:
        """Options with the pipeline's defaults. tenant: namespace of cached prefixes."""
        salt = join_salt(tenant, options.get("cache_salt"))
        salted = {**options, "cache_salt": salt}
        complete = self.pipeline.complete_options(**salted)
        if options.get("temperature") is None and complete.temperature is None:
            # The model recommends none: sample nevertheless, as in vLLM.
            return self.pipeline.complete_options(**{**salted, "temperature": DEFAULT_TEMPERATURE})
        return complete

    async def check_health(self) -> None:
        """Raise `ApiError` unless the thread runs, and its current step makes progress."""
        loop = self.generator.loop
        if not loop.is_alive or loop.step_seconds > self._settings.step_timeout:
            raise stalled()

    async def collect_metrics(self) -> list[Metric]:
        """Its metrics."""
        return list(self.metrics.registry.collect())

    def close(self) -> None:
        """Free the models."""
        self.pipeline.close()
        self.generator.loop.join(self._settings.step_timeout)

    def _check(
        self, ask: Ask, tenant: str | None, stream: Stream[Chunk]
    ) -> list[tuple[Generation, Timer]]:
        """The generations of a request, ready to submit. Too slow for the event loop."""
        options = self.complete(ask.options, tenant)
        prompts = [self.generator.encode(prompt, options) for prompt in ask.prompts]
        limited = limit_work(ask, prompts, self.max_length, self._settings.max_request_tokens)
        if limited is not ask:
            options = self.complete(limited.options, tenant)
        choices = [options.copy_with(**own) for own in ask.choices]
        return [
            self._check_one(ids, own, stream, index)
            for index, (ids, own) in enumerate(product(prompts, choices))
        ]

    def _check_one(
        self, ids: Sequence[int], options: GenerationOptions, stream: Stream[Chunk], index: int
    ) -> tuple[Generation, Timer]:
        timer, put = Timer(self.metrics), stream.receiver(index)

        def receive(chunks: Sequence[Chunk]) -> None:
            timer.receive(chunks)
            put(chunks)

        def end(error: BaseException | None) -> None:
            reason = generation.sequence.finish_reason if error is None else None
            self.metrics.ended(generation.output.stats, reason)
            stream.end(error)

        generation = self.generator.begin(ids, options, receive, end)
        return generation, timer


def stalled() -> ApiError:
    """The answer of `/health` while a step hangs."""
    return ApiError(503, "the engine makes no progress", code="engine_stalled")


def _report(error: Exception) -> None:
    log.error("a step failed, and with it all running requests", exc_info=error)
