"""What each way to keep keys in a paged KV cache costs, against inference in f32 throughout.

    python -m tests.benchmarks key-quantization --main MODEL

For each inference precision and cache: the mean KL divergence of its next-token
distributions from those in f32, that of its worst tokens (the 99th percentile), its perplexity, and
the cache's bytes per token. `bf16` is what OpenVINO takes by default where the processor has it;
`f32` leaves the cache's share alone. Centered keys are those that `center_keys` has changed.
"""

from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from ov_specdec.graph.paging import select_rows, to_paged
from ov_specdec.graph.products import center_keys
from ov_specdec.models.devices import openvino_core
from ov_specdec.models.source import open_source
from ov_specdec.runner.base import Span
from ov_specdec.runner.paged import PagedModel
from tests.benchmarks.measuring import Measurements, measures
from tests.benchmarks.options import Models, model_options
from tests.benchmarks.record import Row
from tests.benchmarks.tables import table, value
from tests.benchmarks.texts import long_text

Array = NDArray[np.float32]

BY_TOKEN = {"KEY_CACHE_QUANT_MODE": "BY_TOKEN"}
CENTERED = " centered"
CACHES = {
    "u8 keys by channel": {"KEY_CACHE_QUANT_MODE": "BY_CHANNEL"},
    "u8 keys by token": BY_TOKEN,
    f"u8 keys by token{CENTERED}": BY_TOKEN,
    "u8 keys by token and 32 channels": {**BY_TOKEN, "KEY_CACHE_GROUP_SIZE": "32"},
    "bf16 keys and u8 values": {"KEY_CACHE_PRECISION": "bf16"},
    "bf16": {"KV_CACHE_PRECISION": "bf16"},
    "f16": {"KV_CACHE_PRECISION": "f16"},
    "f32": {"KV_CACHE_PRECISION": "f32"},
}
INFERENCE = {
    "bf16": {"INFERENCE_PRECISION_HINT": "bf16"},
    "f32": {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"},
}


def log_probabilities(
    folder: Path, tokens: list[int], precision: str, kept: str
) -> tuple[Array, int]:
    """Of each next token [tokens, vocab], and the bytes of a cached token.

    `RuntimeError` where OpenVINO has no such cache.
    """
    source = open_source(folder)
    to_paged(source.model)
    if kept.endswith(CENTERED):
        center_keys(source.model)
    select_rows(source.model, axis=0)
    properties = {**INFERENCE[precision], **CACHES[kept]}
    compiled = openvino_core().compile_model(source.model, "CPU", properties)
    model = PagedModel(
        compiled, max_length=source.folder.context_length, vocab_size=source.vocab_size
    )
    logits = np.array(model.forward([Span(model.open(), tokens, len(tokens))])[0], np.float32)
    logits -= logits.max(axis=1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return logits, model.bytes_per_token


def perplexity(log_probs: Array, tokens: list[int]) -> float:
    following = log_probs[np.arange(len(tokens) - 1), tokens[1:]]
    return float(np.exp(-following.mean()))


def tables(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each precision and cache."""
    columns = {
        "KL": value("KL", ".5f"),
        "KL, 99th percentile": value("worst", ".4f"),
        "perplexity": value("perplexity", ".2f"),
        "perplexity in f32": value("in f32", ".2f"),
        "bytes per token": value("bytes"),
        "note": value("note"),
    }
    yield table(rows, ["inference", "cache"], columns)


@click.command()
@model_options
@click.option("--tokens", default=1400, show_default=True, help="Of the source of argparse.")
@measures
def key_quantization(models: Models, tokens: int) -> Measurements:
    """Measure what each way to keep keys costs: divergence from f32."""
    ids = open_source(models.main).tokenizer.encode(long_text())[:tokens]
    run = partial(log_probabilities, models.main, ids)
    in_f32 = cache(partial(run, "f32", "f32"))

    def measure(precision: str, kept: str) -> Row:
        try:
            measured, num_bytes = run(precision, kept)
        except RuntimeError as error:
            if "kvcache type" not in str(error):
                raise
            return {"KL": None, "note": "does not compile"}
        exact, _ = in_f32()
        kl = (np.exp(exact) * (exact - measured)).sum(axis=1)
        return {
            "KL": float(kl.mean()),
            "worst": float(np.percentile(kl, 99)),
            "perplexity": perplexity(measured, ids),
            "in f32": perplexity(exact, ids),
            "bytes": num_bytes,
        }

    for precision in INFERENCE:
        for kept in CACHES:
            yield {"inference": precision, "cache": kept}, partial(measure, precision, kept)
