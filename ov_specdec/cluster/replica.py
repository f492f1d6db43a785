"""One replica: the models on exclusive CPUs."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from prometheus_client import Metric
from ray import serve

from ov_specdec.chunks import Chunk
from ov_specdec.cluster.cpus import claim, pin, read_places
from ov_specdec.cluster.work import ModelInfo, Work
from ov_specdec.openai import ApiError, from_exception
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.server.engine import LocalEngine
from ov_specdec.server.settings import Settings
from ov_specdec.server.stream import Stream


class Replica:
    """Runs generations for the ingress.

    arguments: those of `SpeculativePipeline`. num_cpus: CPUs that it claims for itself.
    """

    def __init__(self, arguments: Mapping[str, Any], settings: Settings, num_cpus: int) -> None:
        self._claim = claim(read_places(), num_cpus)
        pin(self._claim.cpus)
        pipeline = SpeculativePipeline(**arguments)
        pipeline.check_batch_invariant()
        name = serve.get_replica_context().replica_tag
        self._engine = LocalEngine(pipeline, settings, name)

    async def generate(self, work: Work) -> AsyncIterator[list[tuple[int, Chunk]] | ApiError]:
        """Chunks with the index of their choice, as they come; or an `ApiError` as the answer.

        Raises other errors. A reader that stops ends the generations.
        """
        stream = Stream[Chunk](work.ask.num_choices, None)
        try:
            async with self._engine.running(work.ask, work.tenant, stream, _at_once):
                while chunks := await stream.next_all():
                    yield chunks
        except Exception as error:
            failure = from_exception(error, "", work.ask.endpoint)
            if failure.status == 500:
                raise
            yield failure

    async def describe(self) -> ModelInfo:
        """The description for the ingress."""
        engine = self._engine
        return ModelInfo(engine.tokenizer, engine.max_length, engine.batch_invariant, engine.about)

    async def collect_metrics(self) -> list[Metric]:
        """Its metrics."""
        return await self._engine.collect_metrics()

    async def check_health(self) -> None:
        """Raise unless it makes progress; Ray calls this regularly, and replaces it then."""
        await self._engine.check_health()


async def _at_once() -> None:
    """Admit a request at once: it has waited in the ingress."""
