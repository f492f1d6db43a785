"""What each way to keep keys in a paged KV cache costs, against inference in f32 throughout.

    python -m tests.benchmarks key-quantization --main MODEL
    python -m tests.benchmarks key-quantization --main MODEL --biases 30,100,300 --layers ends
    python -m tests.benchmarks key-quantization --main MODEL --caches f16,bf16 --inference bf16

For each inference precision and cache: the mean KL divergence of its next-token
distributions from those in f32, that of its worst tokens (the 99th percentile), its perplexity, and
the cache's bytes per token. `bf16` is what OpenVINO takes by default where the processor has it;
`f32` leaves the cache's share alone. Centered keys are those that `center_keys` has changed.

With --biases each model is measured again for each size, with a bias added to its keys as Qwen2 has
it: a few channels of each head, those that RoPE rotates least, get a constant of that size, half of
it or a quarter. A constant that does not rotate adds the same to all scores of a query, so that the
model stays what it was; the perplexity in f32 tells how far. --layers ends gives it to the first
layer and the last one only, where Qwen2.5-7B has its largest.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import click
import numpy as np
import openvino as ov
from numpy.typing import NDArray
from openvino import opset13 as ops

from ov_specdec.graph.paging import select_rows, to_paged
from ov_specdec.graph.products import center_keys
from ov_specdec.models.devices import openvino_core
from ov_specdec.models.source import ModelSource, open_source
from ov_specdec.records.files import read_json
from ov_specdec.runner.base import Span
from ov_specdec.runner.paged import PagedModel
from tests.benchmarks.measuring import Measurements, measures
from tests.benchmarks.options import PATH, Models, model_options, several
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
    "u8 keys by token and 16 channels": {**BY_TOKEN, "KEY_CACHE_GROUP_SIZE": "16"},
    "bf16 keys and u8 values": {"KEY_CACHE_PRECISION": "bf16"},
    "bf16": {"KV_CACHE_PRECISION": "bf16"},
    "f16": {"KV_CACHE_PRECISION": "f16"},
    "f32": {"KV_CACHE_PRECISION": "f32"},
}
INFERENCE = {
    "bf16": {"INFERENCE_PRECISION_HINT": "bf16"},
    "f32": {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"},
}

SHARES = (1.0, -0.5, 0.25, -0.25)
"""Of a bias, for the channels that rotate least: two pairs, from the end of either half."""


def add_key_biases(model: ov.Model, head_size: int, size: float, layers: str) -> None:
    """Add a bias to the keys of an exported decoder whose RoPE turns the halves of a head."""
    products = [
        node
        for node in model.get_ordered_ops()
        if node.get_type_name() == "MatMul" and ".k_proj" in node.get_friendly_name()
    ]
    head = np.zeros(head_size, np.float32)
    half = head_size // 2
    head[[head_size - 1, half - 1, head_size - 2, half - 2]] = size * np.array(SHARES, np.float32)
    for product in products if layers == "all" else (products[0], products[-1]):
        width = product.get_output_partial_shape(0)[-1].get_length()
        readers = product.output(0).get_target_inputs()
        bias = np.tile(head, width // head_size).reshape(1, 1, -1)
        added = ops.add(product, ops.constant(bias))
        for reader in readers:
            reader.replace_source_output(added.output(0))
    model.validate_nodes_and_infer_types()


def compile_paged(source: ModelSource, inference: str, cache: str) -> PagedModel:
    """A model with a paged cache; `RuntimeError` where OpenVINO has no such cache."""
    to_paged(source.model)
    if cache.endswith(CENTERED):
        center_keys(source.model)
    select_rows(source.model, axis=0)
    properties = {**INFERENCE[inference], **CACHES[cache]}
    compiled = openvino_core().compile_model(source.model, "CPU", properties)
    return PagedModel(
        compiled, max_length=source.folder.context_length, vocab_size=source.vocab_size
    )


def log_probabilities(model: PagedModel, tokens: list[int], pass_tokens: int) -> Array:
    """Of each next token, [tokens, vocab]."""
    slot = model.open()
    rows = []
    for start in range(0, len(tokens), pass_tokens):
        some = tokens[start : start + pass_tokens]
        logits = np.array(model.forward([Span(slot, some, len(some))])[0], np.float32)
        logits -= logits.max(axis=1, keepdims=True)
        logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
        rows.append(logits)
    return np.concatenate(rows)


def divergences(reference: Array, measured: Array) -> Array:
    """KL of each row from the reference."""
    return np.array(
        [np.exp(a) @ (a - b) for a, b in zip(reference, measured, strict=True)], np.float32
    )


def perplexity(log_probs: Array, tokens: list[int]) -> float:
    following = log_probs[np.arange(len(tokens) - 1), tokens[1:]]
    return float(np.exp(-following.mean()))


def biased_source(folder: Path, size: float, layers: str) -> ModelSource:
    source = open_source(folder)
    if size:
        config = read_json(folder / "config.json")
        heads: int = config["num_attention_heads"]
        head_size = config.get("head_dim") or config["hidden_size"] // heads
        add_key_biases(source.model, head_size, size, layers)
    return source


def divergence(
    folder: Path, size: float, tokens: list[int], layers: str, pass_tokens: int
) -> Callable[[str, str], Row]:
    """What a precision and a cache cost a model with a bias of a size."""

    def run(precision: str, cache: str) -> tuple[Array, int]:
        model = compile_paged(biased_source(folder, size, layers), precision, cache)
        return log_probabilities(model, tokens, pass_tokens), model.bytes_per_token

    reference = functools.cache(partial(run, "f32", "f32"))

    def measure(precision: str, cache: str) -> Row:
        try:
            measured, num_bytes = run(precision, cache)
        except RuntimeError as error:
            if "kvcache type" not in str(error):
                raise
            return {"KL": None, "note": "does not compile"}
        kl = divergences(reference()[0], measured)
        return {
            "KL": float(kl.mean()),
            "worst": float(np.percentile(kl, 99)),
            "perplexity": perplexity(measured, tokens),
            "in f32": perplexity(reference()[0], tokens),
            "bytes": num_bytes,
        }

    return measure


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
    yield table(rows, ["bias", "inference", "cache"], columns)


@click.command()
@model_options
@click.option("--text", type=PATH, help="[the source of argparse]")
@click.option("--tokens", default=1400, show_default=True, help="Of the text.")
@click.option("--pass-tokens", default=1400, show_default=True, help="Of a pass.")
@several("--biases", float, (), says="Sizes of biases that are added to keys.")
@click.option("--layers", type=click.Choice(["all", "ends"]), default="all", show_default=True)
@several("--caches", str, tuple(CACHES), says="How keys and values are kept.", among=CACHES)
@several("--inference", str, tuple(INFERENCE), says="Precisions.", among=INFERENCE)
@measures
def key_quantization(
    models: Models,
    text: Path | None,
    tokens: int,
    pass_tokens: int,
    biases: tuple[float, ...],
    layers: str,
    caches: tuple[str, ...],
    inference: tuple[str, ...],
) -> Measurements:
    """Measure what each way to keep keys costs: divergence from f32."""
    content = text.read_text(encoding="utf-8") if text else long_text()
    ids = open_source(models.main).tokenizer.encode(content)[:tokens]
    for size in (0.0, *biases):
        measure = divergence(models.main, size, ids, layers, pass_tokens)
        for precision in inference:
            for cache in caches:
                key = {"bias": size, "inference": precision, "cache": cache}
                yield key, partial(measure, precision, cache)
