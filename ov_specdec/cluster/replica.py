"""One replica: the models on exclusive CPUs."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from prometheus_client import Metric
from ray import serve

from ov_specdec.cluster.cpus import claim, pin, read_cores
from ov_specdec.cluster.remote import Work
from ov_specdec.openai import ApiError, from_exception
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.results.chunks import Chunk
from ov_specdec.results.stats import BatchInvariance
from ov_specdec.server.engine import LocalEngine
from ov_specdec.server.settings import Settings
from ov_specdec.server.stream import Stream
from ov_specdec.text.tokenizer import Tokenizer


class Replica:
    """Runs generations for the ingress.

    arguments: those of `SpeculativePipeline`. num_cpus: CPUs that it claims for itself.
    """

    def __init__(self, arguments: Mapping[str, Any], settings: Settings, num_cpus: int) -> None:
        self._claim = claim(read_cores(), num_cpus)
        pin(self._claim.cpus)
        pipeline = SpeculativePipeline(**arguments)
        pipeline.check_batch_invariant()
        name = serve.get_replica_context().replica_tag
        self._engine = LocalEngine(pipeline, settings, name)

    async def generate(self, work: Work) -> AsyncIterator[list[tuple[int, Chunk]] | ApiError]:
        """Chunks with the index of their choice, as they come; or an `ApiError` as the answer.

        The first are none: the request runs now. Raises other errors. A reader that stops ends the
        generations.
        """
        stream = Stream[Chunk](work.ask.num_choices, None)
        try:
            async with self._engine.running(work.ask, work.tenant, stream):
                await stream.admitted.wait()
                yield []
                while chunks := await stream.next_all():
                    yield chunks
        except Exception as error:
            failure = from_exception(error, "", work.ask.endpoint)
            if failure.status == 500:
                raise
            yield failure

    async def describe(self) -> tuple[Tokenizer, int, BatchInvariance]:
        """The tokenizer, the maximum tokens of prompt and output, and batch invariance."""
        engine = self._engine
        return engine.tokenizer, engine.max_length, engine.batch_invariant

    async def collect_metrics(self) -> list[Metric]:
        """Its metrics."""
        return await self._engine.collect_metrics()

    async def check_health(self) -> None:
        """Raise unless it makes progress; Ray calls this regularly, and replaces it then."""
        await self._engine.check_health()
