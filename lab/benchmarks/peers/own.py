"""Ways to decode of this project, as methods of the laboratory."""

from collections.abc import Iterator
from time import perf_counter, sleep
from typing import Any

from lab.benchmarks.peers.asks import Ask, Measurement, Progress, Setup
from ov_specdec.engine.loop import IdleWork
from ov_specdec.generation.batch import Batch
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.results.chunks import Chunk

LAST_PASS = 1.0
"""Seconds in which the last pass ends after its answer no longer waits."""


class PipelineRunner:
    """Runs a `SpeculativePipeline`. Implements `Runner`."""

    def __init__(self, pipeline: SpeculativePipeline) -> None:
        self._pipeline = pipeline

    def run(self, ask: Ask, length: int | None) -> Measurement:
        """See `Runner`."""
        options = options_of(ask, length)
        start = perf_counter()
        result = self._pipeline.generate(list(ask.prompt_ids), **options)
        seconds, stats = perf_counter() - start, result.stats
        rest(self._pipeline._open_generator().answers)
        return Measurement(
            token_ids=result.token_ids,
            seconds=seconds,
            # What the rounds do not count, such as measuring passes, comes before it.
            first_token_seconds=seconds - (stats.seconds - stats.time_to_first_token),
            main_passes=stats.main_passes,
            drafted=stats.drafted or None,
            accepted=stats.accepted if stats.drafted else None,
        )


class BatchEngine:
    """Runs requests together in a `SpeculativePipeline`. Implements `Engine`."""

    def __init__(self, pipeline: SpeculativePipeline) -> None:
        self._pipeline = pipeline
        self._batch: Batch[int] = pipeline.open_batch()

    def add(self, number: int, ask: Ask, length: int | None) -> None:
        """See `Engine`."""
        self._batch.add(number, list(ask.prompt_ids), **options_of(ask, length))

    def step(self) -> Iterator[Progress]:
        """See `Engine`."""
        news: dict[int, list[Chunk]] = {}
        for number, chunk in self._batch.step():
            if isinstance(chunk, BaseException):
                raise chunk
            news.setdefault(number, []).append(chunk)
        for number, chunks in news.items():
            token_ids = [token for chunk in chunks for token in chunk.token_ids]
            yield Progress(number, token_ids, chunks[-1].stats is not None)
        if not self._batch:
            rest(self._pipeline._open_generator().answers)


def rest(work: IdleWork) -> None:
    """Wait until idle work is done, which would slow down the method that comes next."""
    while work.is_pending:
        sleep(LAST_PASS)


def options_of(ask: Ask, length: int | None) -> dict[str, Any]:
    """Those of a generation. A context of its own keeps what was read, and outputs, to itself."""
    options: dict[str, Any] = {"max_new_tokens": ask.max_new_tokens, "ignore_eos": not ask.ends}
    options |= {"cache_prompt": ask.context is not None}
    options |= {} if ask.context is None else {"cache_salt": ask.context}
    options |= {} if length is None else {"num_assistant_tokens": length}
    options |= {"temperature": ask.temperature} if ask.temperature else {}
    if ask.json_schema:
        options |= {"json_schema": ask.json_schema, "json_whitespace": ask.json_whitespace}
    return options


def load(setup: Setup, **settings: Any) -> PipelineRunner:
    """A pipeline for one request at a time, prepared where the setup says so."""
    return PipelineRunner(_pipeline(setup, **settings))


def load_engine(setup: Setup, **settings: Any) -> BatchEngine:
    """A pipeline for many requests at once."""
    return BatchEngine(_pipeline(setup, **settings))


def _pipeline(setup: Setup, **settings: Any) -> SpeculativePipeline:
    pipeline = setup.models.pipeline(
        max_batch_size=setup.max_batch_size,
        static_shapes=setup.static_shapes,
        kv_cache_size=setup.kv_cache_gb,
        **settings,
    )
    if setup.is_prepared:
        pipeline.prepare()
        for work in [*pipeline._open_generator().loop._idle_work]:
            rest(work)
    return pipeline
