"""openvino.genai's `LLMPipeline` as a peer: plain, with a draft model, with prompt lookup."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import openvino as ov

from ov_specdec.loading.locate import IR_FILE
from tests.benchmarks.peers.errors import BenchmarkError
from tests.benchmarks.peers.frameworks.same_tokenizer import require_same_tokenizer
from tests.benchmarks.peers.measurement import Measurement
from tests.benchmarks.peers.setup import Setup

REMEDY = "pip install openvino-genai openvino-tokenizers"
MAX_NGRAM_SIZE = 3
ALL_AT_ONCE = 2**31
"""Prompt tokens per step: more than any context has."""


class GenaiRunner:
    """Runs an `LLMPipeline` with a fixed configuration. Implements `Runner`."""

    def __init__(self, pipeline: Any, config: Any) -> None:
        self._pipeline = pipeline
        self._config = config

    def run(self, prompt_ids: Sequence[int], max_new_tokens: int) -> Measurement:
        """See `Runner`. Token ids go in and come out, so that no tokenizer has a part in it."""
        self._config.max_new_tokens = max_new_tokens
        prompt = ov.Tensor(np.array([prompt_ids], np.int64))
        start = perf_counter()
        result = self._pipeline.generate(prompt, self._config)
        seconds = perf_counter() - start
        return _measurement(result, seconds)


def _measurement(result: Any, seconds: float) -> Measurement:
    """What the pipeline's own record says, under this benchmark's terms."""
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


def plain(setup: Setup, _length: int | None) -> GenaiRunner:
    """`LLMPipeline` with the main model alone."""
    return GenaiRunner(load_plain(setup), greedy(import_genai()))


def with_draft(setup: Setup, length: int | None) -> GenaiRunner:
    """`LLMPipeline` with a draft model that proposes `length` tokens per round."""
    return GenaiRunner(load_with_draft(setup), drafting(length))


def prompt_lookup(setup: Setup, length: int | None) -> GenaiRunner:
    """`LLMPipeline` with draft tokens from the text itself, `length` per round."""
    return GenaiRunner(load_prompt_lookup(setup), looking_up(length))


def load_plain(setup: Setup) -> Any:
    """The pipeline that decodes plainly."""
    return _load(import_genai(), setup, {})


def load_with_draft(setup: Setup) -> Any:
    """The pipeline with a draft model, for any length."""
    require_same_tokenizer(setup)
    genai = import_genai()
    folder = model_with_tokenizer(Path(setup.draft), Path(setup.scratch) / "draft")
    draft = genai.draft_model(str(folder), setup.device, **setup.all_properties("draft"))
    return _load(genai, setup, {"draft_model": draft})


def load_prompt_lookup(setup: Setup) -> Any:
    """The pipeline with prompt lookup, for any length."""
    return _load(import_genai(), setup, {"prompt_lookup": True})


def drafting(length: int | None) -> Any:
    """Its settings of a generation with so many draft tokens a round from a draft model."""
    return greedy(import_genai(), num_assistant_tokens=length)


def looking_up(length: int | None) -> Any:
    """Its settings of a generation with so many draft tokens a round from the text itself."""
    settings = {"num_assistant_tokens": length, "max_ngram_size": MAX_NGRAM_SIZE}
    return greedy(import_genai(), **settings)


def import_genai() -> Any:
    """The package; `BenchmarkError` where it is missing."""
    try:
        import openvino_genai
    except ImportError as error:
        raise BenchmarkError(f"openvino-genai cannot be imported ({error}): {REMEDY}") from error
    return openvino_genai


def _load(genai: Any, setup: Setup, settings: dict[str, Any]) -> Any:
    folder = model_with_tokenizer(Path(setup.main), Path(setup.scratch) / "main")
    # Its defaults for one request at a time, but that every run reads all of its prompt.
    scheduler = genai.SchedulerConfig()
    scheduler.max_num_batched_tokens = ALL_AT_ONCE
    scheduler.enable_prefix_caching = False
    settings["scheduler_config"] = scheduler
    return genai.LLMPipeline(str(folder), setup.device, **setup.all_properties(), **settings)


def greedy(genai: Any, **settings: Any) -> Any:
    """Its settings of a generation: greedy, past any end-of-sequence token."""
    config = genai.GenerationConfig(**settings)
    config.ignore_eos = True
    config.do_sample = False
    return config


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
