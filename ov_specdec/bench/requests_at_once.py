"""One load: concurrent requests to one pipeline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from ov_specdec.chunks import Chunk, GenerationResult, collect
from ov_specdec.pipeline import SpeculativePipeline


@dataclass(frozen=True)
class Answer:
    """The answer to one request, with the seconds to its first and to its last token.

    They count from the arrival of the load, time in the queue included.
    """

    result: GenerationResult
    first_token_seconds: float
    seconds: float

    @property
    def token_seconds(self) -> float:
        """Seconds per token after the first; 0 if there is only one."""
        following = len(self.result.token_ids) - 1
        return (self.seconds - self.first_token_seconds) / following if following else 0.0


def answer_at_once(
    pipeline: SpeculativePipeline, options: Mapping[str, Any], prompts: Sequence[str]
) -> list[Answer]:
    """Answer concurrent prompts, in their order; raises the first error of a request."""
    chunks: list[list[Chunk]] = [[] for _ in prompts]
    seconds: list[list[float]] = [[] for _ in prompts]
    with pipeline.open_batch() as batch:
        start = perf_counter()
        for key, prompt in enumerate(prompts):
            batch.add(key, prompt, **options)
        while len(batch):
            news = batch.step()
            now = perf_counter() - start
            for key, chunk in news:
                if isinstance(chunk, BaseException):
                    raise chunk
                chunks[key].append(chunk)
                seconds[key].append(now)
    return [
        Answer(collect(own), times[0], times[-1])
        for own, times in zip(chunks, seconds, strict=True)
    ]
