"""openvino.genai's `ContinuousBatchingPipeline` as a peer: plain, with a draft, with lookup."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov

from tests.benchmarks.peers.errors import BenchmarkError
from tests.benchmarks.peers.frameworks.genai import (
    configured,
    draft_settings,
    import_genai,
    model_with_tokenizer,
)
from tests.benchmarks.peers.load import Progress, Request
from tests.benchmarks.peers.setup import Setup

TOKENS_PER_STEP = 256
"""Most tokens of a step, prompts and draft tokens together: its default."""


class GenaiEngine:
    """Runs a `ContinuousBatchingPipeline` step by step. Implements `Engine`."""

    def __init__(self, genai: Any, pipeline: Any) -> None:
        self._finished = genai.py_openvino_genai.GenerationStatus.FINISHED
        self._running = genai.py_openvino_genai.GenerationStatus.RUNNING
        self._pipeline = pipeline
        self._handles: dict[int, Any] = {}

    def add(self, number: int, request: Request) -> None:
        """See `Engine`. It keeps prefixes for all requests or for none: see `Setup`."""
        config = configured(request.length)
        config.max_new_tokens = request.max_new_tokens
        prompt = ov.Tensor(np.array([request.prompt_ids], np.int64))
        self._handles[number] = self._pipeline.add_request(number, prompt, config)

    def step(self) -> Iterator[Progress]:
        """See `Engine`."""
        self._pipeline.step()
        for number, handle in list(self._handles.items()):
            status = handle.get_status()
            if status not in (self._running, self._finished):
                raise BenchmarkError(f"a request ended as {status.name}: it had too little memory")
            if handle.can_read():
                token_ids = [t for output in handle.read().values() for t in output.generated_ids]
                if status == self._finished:
                    del self._handles[number]
                yield Progress(number, token_ids, status == self._finished)


def load_plain(setup: Setup) -> GenaiEngine:
    """The pipeline with the main model alone."""
    return _load(setup, {})


def load_with_draft(setup: Setup) -> GenaiEngine:
    """The pipeline with a draft model, for any length."""
    return _load(setup, draft_settings(setup))


def load_prompt_lookup(setup: Setup) -> GenaiEngine:
    """The pipeline with draft tokens from the text itself, for any length."""
    return _load(setup, {"prompt_lookup": True})


def _load(setup: Setup, settings: dict[str, Any]) -> GenaiEngine:
    genai = import_genai()
    folder = str(model_with_tokenizer(Path(setup.main), Path(setup.scratch) / "main"))
    # Its defaults, but that prefixes are kept where they are to be.
    scheduler = genai.SchedulerConfig()
    scheduler.max_num_batched_tokens = TOKENS_PER_STEP
    scheduler.dynamic_split_fuse = True
    scheduler.enable_prefix_caching = setup.kv_cache_gb is not None
    scheduler.cache_size = int(setup.kv_cache_gb or 0)
    tokenizer = genai.Tokenizer(folder)
    pipeline = genai.ContinuousBatchingPipeline(
        folder, tokenizer, scheduler, "CPU", **setup.properties, **settings
    )
    return GenaiEngine(genai, pipeline)
