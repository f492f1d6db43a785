"""The project's own ways to decode, as methods of the benchmark."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ov_specdec.batch import Batch
from ov_specdec.chunks import Chunk
from ov_specdec.drafters.factory import WITH_DRAFT
from ov_specdec.loading.runtime_config import KvBackend
from ov_specdec.pipeline import SpeculativePipeline
from tests.benchmarks.peers.load import Progress
from tests.benchmarks.peers.measurement import Measurement
from tests.benchmarks.peers.setup import Setup


class PipelineRunner:
    """Runs a `SpeculativePipeline` with fixed options. Implements `Runner`."""

    def __init__(self, pipeline: SpeculativePipeline, options: Mapping[str, Any]) -> None:
        self._pipeline = pipeline
        self._options = options

    def run(self, prompt_ids: Sequence[int], max_new_tokens: int) -> Measurement:
        """See `Runner`."""
        return measure(self._pipeline, prompt_ids, max_new_tokens, self._options)

    def engine(self) -> "BatchEngine":
        """The same for many requests at once, with static shapes by the last load."""
        self._pipeline.prepare()
        return BatchEngine(self._pipeline, self._options)


class BatchEngine:
    """Runs requests together in a `SpeculativePipeline` with fixed options. Implements `Engine`."""

    def __init__(self, pipeline: SpeculativePipeline, options: Mapping[str, Any]) -> None:
        self._batch: Batch[int] = pipeline.open_batch()
        self._options = options

    def add(self, number: int, prompt_ids: Sequence[int], max_new_tokens: int) -> None:
        """See `Engine`."""
        self._batch.add(number, prompt_ids, **_options(max_new_tokens, self._options))

    def step(self) -> Iterator[Progress]:
        """See `Engine`."""
        news: dict[int, list[Chunk]] = {}
        for number, chunk in self._batch.step():
            if isinstance(chunk, BaseException):
                raise chunk
            news.setdefault(number, []).append(chunk)
        for number, chunks in news.items():
            token_ids = [token for chunk in chunks for token in chunk.token_ids]
            stats = chunks[-1].stats
            figures = (stats.drafted, stats.accepted) if stats and stats.drafted else (None, None)
            yield Progress(number, token_ids, stats is not None, *figures)


def measure(
    pipeline: SpeculativePipeline,
    prompt_ids: Sequence[int],
    max_new_tokens: int,
    options: Mapping[str, Any],
) -> Measurement:
    """One generation that reads all of its prompt."""
    result = pipeline.generate(prompt_ids, **_options(max_new_tokens, options))
    stats = result.stats
    return Measurement(
        token_ids=result.token_ids,
        seconds=stats.seconds,
        first_token_seconds=stats.time_to_first_token,
        main_passes=stats.main_passes,
        drafted=stats.drafted or None,
        accepted=stats.accepted if stats.drafted else None,
    )


def _options(max_new_tokens: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a generation that reads all of its prompt, and goes on past its end."""
    return {
        "max_new_tokens": max_new_tokens,
        "ignore_eos": True,
        "cache_prompt": False,
        **options,
    }


def own(
    drafter: str, *, kv: KvBackend = "auto", trim: bool = False
) -> Callable[[Setup, int | None], PipelineRunner]:
    """A way to build a runner: a drafter of `SpeculativePipeline`, and a KV cache.

    What it builds drafts as many tokens as it is told, or as the planner says.
    trim: remove stale entries from a stateful KV cache at each rollback, instead of hiding them.
    """

    def build(setup: Setup, length: int | None) -> PipelineRunner:
        arguments = setup.pipeline_arguments(kv, drafts=drafter in WITH_DRAFT)
        arguments["drafter"] = drafter
        if trim:
            arguments["max_hidden_tokens"] = 0
        chosen = {} if length is None else {"num_assistant_tokens": length}
        pipeline = SpeculativePipeline(**arguments)
        pipeline.prepare()
        return PipelineRunner(pipeline, chosen)

    return build
