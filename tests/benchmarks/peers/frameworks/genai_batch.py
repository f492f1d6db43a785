"""openvino.genai's `ContinuousBatchingPipeline` as a peer: plain, with a draft, with lookup."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov

from tests.benchmarks.peers.errors import BenchmarkError
from tests.benchmarks.peers.frameworks.genai import (
    drafting,
    greedy,
    import_genai,
    looking_up,
    model_with_tokenizer,
)
from tests.benchmarks.peers.frameworks.same_tokenizer import require_same_tokenizer
from tests.benchmarks.peers.load import Progress
from tests.benchmarks.peers.setup import Setup

TOKENS_PER_STEP = 256
"""Most tokens of a step, prompts and draft tokens together: its default."""


@dataclass
class Handle:
    """A request under way: the pipeline's own handle, and what has come of it."""

    handle: Any
    max_new_tokens: int
    num_generated: int = 0
    num_steps: int = 0
    drafted: int = 0


class GenaiEngine:
    """Runs a `ContinuousBatchingPipeline` step by step. Implements `Engine`.

    length: draft tokens of each step; 0 for plain decoding. counts: whether its draft tokens are
    always so many, as those of a draft model are.
    """

    def __init__(
        self, genai: Any, pipeline: Any, config: Any, length: int = 0, *, counts: bool = False
    ) -> None:
        self._finished = genai.py_openvino_genai.GenerationStatus.FINISHED
        self._running = genai.py_openvino_genai.GenerationStatus.RUNNING
        self._pipeline = pipeline
        self._config = config
        self._length = length
        self._counts = counts
        self._requests: dict[int, Handle] = {}

    def add(self, number: int, prompt_ids: Sequence[int], max_new_tokens: int) -> None:
        """See `Engine`."""
        self._config.max_new_tokens = max_new_tokens
        prompt = ov.Tensor(np.array([prompt_ids], np.int64))
        handle = self._pipeline.add_request(number, prompt, self._config)
        self._requests[number] = Handle(handle, max_new_tokens)

    def step(self) -> Iterator[Progress]:
        """See `Engine`."""
        self._pipeline.step()
        for number, request in list(self._requests.items()):
            status = request.handle.get_status()
            if status not in (self._running, self._finished):
                raise BenchmarkError(f"a request ended as {status.name}: it had too little memory")
            if request.handle.can_read():
                yield self._progress(number, request, status == self._finished)

    def _progress(self, number: int, request: Handle, has_ended: bool) -> Progress:
        outputs = request.handle.read().values()
        token_ids = [token for output in outputs for token in output.generated_ids]
        if request.num_steps > 0:
            # It leaves room for the main's own token, and drafts one where there is room for none.
            room = request.max_new_tokens - request.num_generated - 1
            request.drafted += max(min(self._length, room), 1)
        request.num_steps += 1
        request.num_generated += len(token_ids)
        if not has_ended:
            return Progress(number, token_ids, has_ended=False)
        del self._requests[number]
        return Progress(
            number,
            token_ids,
            has_ended=True,
            drafted=request.drafted if self._counts else None,
            # Each pass of the main model adds one token of its own.
            accepted=request.num_generated - request.num_steps if self._length else None,
        )


def plain(setup: Setup, _length: int | None) -> GenaiEngine:
    """The pipeline with the main model alone."""
    genai = import_genai()
    return GenaiEngine(genai, _load(genai, setup, {}), greedy(genai))


def with_draft(setup: Setup, length: int | None) -> GenaiEngine:
    """The pipeline with a draft model that proposes `length` tokens per step."""
    require_same_tokenizer(setup)
    genai = import_genai()
    folder = model_with_tokenizer(Path(setup.draft), Path(setup.scratch) / "draft")
    draft = genai.draft_model(str(folder), setup.device, **setup.all_properties("draft"))
    pipeline = _load(genai, setup, {"draft_model": draft})
    return GenaiEngine(genai, pipeline, drafting(length), length or 0, counts=True)


def prompt_lookup(setup: Setup, length: int | None) -> GenaiEngine:
    """The pipeline with draft tokens from the text itself, at most `length` per step."""
    genai = import_genai()
    pipeline = _load(genai, setup, {"prompt_lookup": True})
    return GenaiEngine(genai, pipeline, looking_up(length), length or 0)


def _load(genai: Any, setup: Setup, settings: dict[str, Any]) -> Any:
    folder = model_with_tokenizer(Path(setup.main), Path(setup.scratch) / "main")
    # Its defaults, but that every request reads all of its prompt.
    scheduler = genai.SchedulerConfig()
    scheduler.max_num_batched_tokens = TOKENS_PER_STEP
    scheduler.dynamic_split_fuse = True
    scheduler.enable_prefix_caching = False
    return genai.ContinuousBatchingPipeline(
        str(folder),
        genai.Tokenizer(str(folder)),
        scheduler,
        setup.device,
        **setup.all_properties(),
        **settings,
    )
