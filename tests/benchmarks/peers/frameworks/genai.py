"""openvino.genai's `LLMPipeline` as a peer: plain, with a draft model, with prompt lookup."""

import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import openvino as ov

from ov_specdec.models.locate import IR_FILE
from ov_specdec.models.source import open_source
from tests.benchmarks.peers.errors import BenchmarkError
from tests.benchmarks.peers.measurement import Ask, Measurement
from tests.benchmarks.peers.setup import Setup

REMEDY = "pip install openvino-genai openvino-tokenizers"
MAX_NGRAM_SIZE = 3
CONFIDENCE = 0.4
"""Below which a draft model's confidence ends a draft: the value in its documentation."""

ALL_AT_ONCE = 2**31
"""Prompt tokens per step: more than any context has."""


class GenaiRunner:
    """Runs an `LLMPipeline`. Implements `Runner`; with length 0 it decodes plainly."""

    def __init__(self, pipeline: Any, stop_ids: Collection[int]) -> None:
        self._pipeline = pipeline
        self._stop_ids = set(stop_ids)

    def run(self, ask: Ask, length: int | None) -> Measurement:
        """See `Runner`. Token ids go in and come out, so that no tokenizer has a part in it."""
        config = configured(length)
        config.max_new_tokens = ask.max_new_tokens
        if ask.ends:
            config.ignore_eos, config.stop_token_ids = False, self._stop_ids
        if ask.temperature:
            config.do_sample, config.temperature = True, ask.temperature
        if ask.json_schema:
            schema = import_genai().StructuredOutputConfig(json_schema=ask.json_schema)
            config.structured_output_config = schema
        prompt = ov.Tensor(np.array([ask.prompt_ids], np.int64))
        start = perf_counter()
        result = self._pipeline.generate(prompt, config)
        seconds = perf_counter() - start
        return _measurement(result, seconds)


def _measurement(result: Any, seconds: float) -> Measurement:
    """What the pipeline's own record says, under this laboratory's terms."""
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
        # Its own count leaves out the last round. Each pass of the main adds one token of its own.
        accepted=None if draft is None else len(token_ids) - passes,
    )


def load_plain(setup: Setup) -> GenaiRunner:
    """The pipeline that decodes plainly."""
    return _load(setup, {})


def load_with_draft(setup: Setup) -> GenaiRunner:
    """The pipeline with a draft model, for any length."""
    return _load(setup, draft_settings(setup))


def load_prompt_lookup(setup: Setup) -> GenaiRunner:
    """The pipeline with prompt lookup, for any length."""
    return _load(setup, {"prompt_lookup": True})


def draft_settings(setup: Setup) -> dict[str, Any]:
    """What tells a pipeline its draft model."""
    folder = model_with_tokenizer(Path(setup.draft), Path(setup.scratch) / "draft")
    return {"draft_model": import_genai().draft_model(str(folder), "CPU", **setup.properties)}


def configured(length: int | None) -> Any:
    """Settings of a generation: greedy, past any end-of-sequence token.

    length: draft tokens a round, from a draft model or from the text itself; 0: none; None: as long
    as the draft model is confident.
    """
    config = import_genai().GenerationConfig()
    config.ignore_eos, config.do_sample = True, False
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


def _load(setup: Setup, settings: dict[str, Any]) -> GenaiRunner:
    genai, main = import_genai(), Path(setup.main)
    folder = model_with_tokenizer(main, Path(setup.scratch) / "main")
    # Its defaults for one request at a time, but that every run reads all of its prompt.
    scheduler = genai.SchedulerConfig()
    scheduler.max_num_batched_tokens = ALL_AT_ONCE
    scheduler.enable_prefix_caching = False
    settings["scheduler_config"] = scheduler
    pipeline = genai.LLMPipeline(str(folder), "CPU", **setup.properties, **settings)
    return GenaiRunner(pipeline, open_source(main).eos_token_ids)


def model_with_tokenizer(model: Path, folder: Path) -> Path:
    """`folder`, with the files of `model` and the tokenizer as an IR, which a pipeline wants.

    The models stay where they are; the tokenizer is converted once, in a process of its own, which
    takes memory that is not this one's.
    """
    if (folder / IR_FILE).exists():
        return folder
    partial = folder.with_name(f"{folder.name}.partial")
    partial.mkdir(parents=True)
    for file in model.iterdir():
        if file.is_file() and not file.name.startswith(("openvino_tok", "openvino_detok")):
            (partial / file.name).symlink_to(file.resolve())
    command = [
        sys.executable,
        "-m",
        "tests.benchmarks.peers.frameworks.tokenizer_ir",
        str(model),
        str(partial),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise BenchmarkError(f"the tokenizer cannot be converted ({lines[-1]}): {REMEDY}")
    partial.rename(folder)
    return folder
