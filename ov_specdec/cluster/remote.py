"""The engine of an ingress: replicas in other processes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import chain
from typing import Any

from prometheus_client import Metric
from ray.exceptions import RayActorError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from ov_specdec.chunks import Chunk
from ov_specdec.cluster.prefixes import hash_key, hash_prefixes
from ov_specdec.cluster.work import ModelInfo, Work
from ov_specdec.openai import ApiError, Ask
from ov_specdec.options import GenerationOptions
from ov_specdec.server.about import About
from ov_specdec.server.engine import Admission
from ov_specdec.server.salts import join_salt
from ov_specdec.server.stream import Stream
from ov_specdec.server.threads import run_in_thread
from ov_specdec.stats import BatchInvariance
from ov_specdec.text.generated_tokens import GeneratedTokens
from ov_specdec.text.prompt import encode_prompt
from ov_specdec.text.tokenizer import Tokenizer

ATTEMPTS = 3
"""Attempts of a request if replicas are lost before its first token."""

CONTROL_TIMEOUT = 5.0
"""Timeout of a replica's metrics and health in seconds: below that of Prometheus."""


class RemoteEngine:
    """Implements `EngineClient`. replicas: where the generations run."""

    def __init__(self, replicas: DeploymentHandle[Any], info: ModelInfo) -> None:
        self._replicas = replicas
        self._streaming: Any = replicas.options(stream=True)
        self._info = info

    @property
    def tokenizer(self) -> Tokenizer:
        """The main model's tokenizer."""
        return self._info.tokenizer

    @property
    def max_length(self) -> int:
        """Maximum tokens of prompt and output."""
        return self._info.max_length

    @property
    def batch_invariant(self) -> BatchInvariance:
        """The result of one replica; all are on machines of one kind."""
        return self._info.batch_invariant

    @property
    def about(self) -> About:
        """The description of the model."""
        return self._info.about

    @asynccontextmanager
    async def running(
        self, ask: Ask, tenant: str | None, stream: Stream[Chunk], admission: Admission
    ) -> AsyncIterator[None]:
        """See `EngineClient`."""
        prefixes = await run_in_thread(lambda: self._prefixes(ask, tenant))
        hint = None if ask.cache_key is None else hash_key(ask.cache_key, tenant)
        await admission()
        reading = asyncio.create_task(self._read(Work(ask, tenant, prefixes, hint), stream))
        try:
            yield
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def check_health(self) -> None:
        """Raise `ApiError` unless a replica makes progress. Ray replaces those that do not."""
        if not await self._ask_all("check_health"):
            raise ApiError(503, "no replica makes progress", code="engine_stalled")

    async def collect_metrics(self) -> list[Metric]:
        """The metrics of all replicas."""
        return list(chain.from_iterable(await self._ask_all("collect_metrics")))

    def close(self) -> None:
        """Does nothing: Ray ends the replicas."""

    async def _read(self, work: Work, stream: Stream[Chunk]) -> None:
        """Fill the stream from a replica; retry on another one if it is lost before a token."""
        try:
            for _ in range(ATTEMPTS):
                if await self._try(work, stream):
                    return
            raise _lost()
        except Exception as error:
            stream.fail(error)

    async def _try(self, work: Work, stream: Stream[Chunk]) -> bool:
        """Whether a replica filled the stream; False if it was lost before the first token."""
        has_begun = False
        response = self._streaming.generate.remote(work)
        try:
            async for chunks in response:
                if isinstance(chunks, ApiError):
                    raise chunks
                has_begun = True
                for index, chunk in chunks:
                    stream.receiver(index)([chunk])
        except RayActorError as error:
            if has_begun:
                raise _lost() from error
            return False
        finally:
            response.cancel()
        for _ in range(work.ask.num_choices):
            stream.end(None)
        return True

    async def _ask_all(self, method: str) -> list[Any]:
        """The answers of the replicas that give one."""
        try:
            answers = await self._replicas.broadcast(method).results_async(
                timeout_s=CONTROL_TIMEOUT, return_exceptions=True
            )
        except (RayServeException, TimeoutError):
            return []
        return [answer for answer in answers if not isinstance(answer, BaseException)]

    def _prefixes(self, ask: Ask, tenant: str | None) -> tuple[bytes, ...]:
        """Hashes of the first prompt, for the router. Raises the errors of the prompt."""
        options = GenerationOptions.from_kwargs(ask.options)
        if not options.cache_prompt:
            return ()
        prompt = ask.prompts[0]
        tokens = encode_prompt(prompt, options, self.tokenizer, GeneratedTokens(), self.max_length)
        try:
            return hash_prefixes(tokens, join_salt(tenant, options.cache_salt))
        except OverflowError:  # an invalid id, which the replica reports
            return ()


def _lost() -> ApiError:
    return ApiError(503, "the replica that ran this request is gone", code="replica_lost")
