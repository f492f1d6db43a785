"""openvino.genai as a peer: plain, with a draft model, with prompt lookup; one request or many."""

import subprocess
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import numpy as np
import openvino as ov

from lab.benchmarks.peers.asks import Ask, BenchmarkError, Measurement, Progress, Setup

REMEDY = "pip install openvino-genai openvino-tokenizers"
MAX_NGRAM_SIZE = 3
CONFIDENCE = 0.4
"""Below which a draft model's confidence ends a draft: the value in its documentation."""

ALL_AT_ONCE, TOKENS_PER_STEP = 2**31, 256
"""Prompt tokens of a step: more than any context has; and with several requests, its default."""

TOKENIZER = "openvino_tokenizer.xml"
CONVERT = "from openvino_tokenizers.cli_tools.convert_tokenizer import *; convert_hf_tokenizer()"
Drafts = Literal["", "model", "lookup"]


class GenaiRunner:
    """Runs an `LLMPipeline`. Implements `Runner`; with length 0 it decodes plainly."""

    def __init__(self, pipeline: Any, model: Path) -> None:
        self._pipeline = pipeline
        self._model = model

    def run(self, ask: Ask, length: int | None) -> Measurement:
        """See `Runner`. Token ids go in and come out, so that no tokenizer has a part in it."""
        config = configured(length, ask.max_new_tokens)
        if ask.ends:
            config.ignore_eos, config.stop_token_ids = False, self._ends
        if ask.temperature:
            config.do_sample, config.temperature = True, ask.temperature
        if ask.json_schema:
            schema = import_genai().StructuredOutputConfig(json_schema=ask.json_schema)
            config.structured_output_config = schema
        start = perf_counter()
        result = self._pipeline.generate(ov.Tensor(np.array([ask.prompt_ids], np.int64)), config)
        seconds = perf_counter() - start
        token_ids = list(result.tokens[0])
        passes = len(result.perf_metrics.raw_metrics.token_infer_durations)
        draft = None
        if result.extended_perf_metrics is not None:  # there with a draft model only
            draft = list(result.extended_perf_metrics.draft_model_metrics.raw_metrics.m_durations)
        return Measurement(
            token_ids=token_ids,
            seconds=seconds,
            first_token_seconds=result.perf_metrics.get_ttft().mean / 1000,
            main_passes=passes,
            # The draft's first pass reads the prompt; each further one is a draft token.
            drafted=None if draft is None else max(len(draft) - 1, 0),
            # Its own count leaves out the last round. Each pass of the main adds one of its own.
            accepted=None if draft is None else len(token_ids) - passes,
        )

    @cached_property
    def _ends(self) -> set[int]:
        from ov_specdec.models.exported import open_exported  # here, for the sake of memory

        return set(open_exported(self._model).eos_token_ids)


class GenaiEngine:
    """Runs a `ContinuousBatchingPipeline` step by step. Implements `Engine`."""

    def __init__(self, genai: Any, pipeline: Any) -> None:
        self._finished = genai.py_openvino_genai.GenerationStatus.FINISHED
        self._running = genai.py_openvino_genai.GenerationStatus.RUNNING
        self._pipeline = pipeline
        self._handles: dict[int, Any] = {}

    def add(self, number: int, ask: Ask, length: int | None) -> None:
        """See `Engine`. It keeps prefixes for all requests or for none: see `Setup`."""
        config = configured(length, ask.max_new_tokens)
        prompt = ov.Tensor(np.array([ask.prompt_ids], np.int64))
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


def load(setup: Setup, drafts: Drafts = "", cache_precision: str = "") -> GenaiRunner:
    """Its pipeline for one request at a time, which reads all of each prompt.

    cache_precision: of KV caches; "" for its default.
    """
    genai = import_genai()
    scheduler = genai.SchedulerConfig()
    scheduler.max_num_batched_tokens = ALL_AT_ONCE
    scheduler.enable_prefix_caching = False
    settings = properties(setup, drafts, cache_precision)
    folder = with_tokenizer(setup.models.main, setup)
    pipeline = genai.LLMPipeline(folder, "CPU", scheduler_config=scheduler, **settings)
    return GenaiRunner(pipeline, setup.models.main)


def load_engine(setup: Setup, drafts: Drafts = "", cache_precision: str = "") -> GenaiEngine:
    """Its pipeline for many, with its defaults, but that prefixes are kept where they are to be."""
    genai = import_genai()
    scheduler = genai.SchedulerConfig()
    scheduler.max_num_batched_tokens = TOKENS_PER_STEP
    scheduler.dynamic_split_fuse = True
    scheduler.enable_prefix_caching = setup.kv_cache_gb is not None
    scheduler.cache_size = int(setup.kv_cache_gb or 0)
    folder = with_tokenizer(setup.models.main, setup)
    settings = properties(setup, drafts, cache_precision)
    pipeline = genai.ContinuousBatchingPipeline(
        folder, genai.Tokenizer(folder), scheduler, "CPU", **settings
    )
    return GenaiEngine(genai, pipeline)


def properties(setup: Setup, drafts: Drafts, cache_precision: str) -> dict[str, Any]:
    """OpenVINO's properties, and who drafts."""
    common = dict(setup.models.properties)
    if cache_precision:
        common["KV_CACHE_PRECISION"] = cache_precision
    if drafts == "model" and setup.models.draft:
        folder = with_tokenizer(setup.models.draft, setup)
        return {**common, "draft_model": import_genai().draft_model(folder, "CPU", **common)}
    return {**common, "prompt_lookup": True} if drafts else common


def configured(length: int | None, max_new_tokens: int) -> Any:
    """Settings of a generation: greedy, past any end-of-sequence token.

    length: draft tokens a round, from a draft model or from the text itself; 0: none; None: as long
    as the draft model is confident.
    """
    config = import_genai().GenerationConfig()
    config.max_new_tokens, config.ignore_eos, config.do_sample = max_new_tokens, True, False
    if length is None:
        config.assistant_confidence_threshold = CONFIDENCE
    elif length:
        config.num_assistant_tokens, config.max_ngram_size = length, MAX_NGRAM_SIZE
    return config


def import_genai() -> Any:
    """The package; `BenchmarkError` where it is missing."""
    try:
        import openvino_genai
    except ImportError as error:
        raise BenchmarkError(f"openvino-genai cannot be imported ({error}): {REMEDY}") from error
    return openvino_genai


def with_tokenizer(model: Path, setup: Setup) -> str:
    """A folder with the model and its tokenizer as an IR, which a pipeline wants.

    A tokenizer that is not there is converted once, into the scratch folder, in a process of its
    own, which takes memory that is not this one's.
    """
    if (model / TOKENIZER).exists():
        return str(model)
    folder = Path(setup.scratch, model.name)
    if not folder.exists():
        folder.mkdir()
        for file in model.iterdir():
            (folder / file.name).symlink_to(file.resolve())
        options = (str(model), "--with-detokenizer", "-o", str(folder))
        command = [sys.executable, "-c", CONVERT, *options]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            reason = done.stderr.strip().rpartition("\n")[2] or f"exit status {done.returncode}"
            raise BenchmarkError(f"the tokenizer cannot be converted ({reason}): {REMEDY}")
    return str(folder)
