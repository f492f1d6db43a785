"""llama.cpp as a peer, by llama-cpp-python: plain, and with its prompt lookup."""

from collections.abc import Sequence
from time import perf_counter
from typing import Any

from ov_specdec.loading.devices import usable_cores
from tests.benchmarks.peers.errors import BenchmarkError
from tests.benchmarks.peers.measurement import Measurement
from tests.benchmarks.peers.setup import Setup

REMEDY = "pip install --no-binary :all: llama-cpp-python"
CONTEXT = 4096


class LlamaCppRunner:
    """Runs a `llama_cpp.Llama`. Implements `Runner`, but for passes and draft tokens: not told."""

    def __init__(self, llama: Any) -> None:
        self._llama = llama

    def run(self, prompt_ids: Sequence[int], max_new_tokens: int) -> Measurement:
        """See `Runner`."""
        self._llama.reset()  # or it would read on from the last prompt's cache
        token_ids = list[int]()
        start = perf_counter()
        for token in self._llama.generate(list(prompt_ids), temp=0.0):
            if not token_ids:
                first = perf_counter() - start
            token_ids.append(token)
            if len(token_ids) == max_new_tokens:
                break
        return Measurement(token_ids, perf_counter() - start, first)


def plain(setup: Setup, _length: int | None) -> LlamaCppRunner:
    """Greedy decoding of the GGUF file."""
    return LlamaCppRunner(_load(setup))


def prompt_lookup(setup: Setup, length: int | None) -> LlamaCppRunner:
    """The same with `length` draft tokens a round from the text itself."""
    package = _import()
    draft = package.llama_speculative.LlamaPromptLookupDecoding(num_pred_tokens=length)
    # Without logits_all it has no room for the logits of prompts longer than a batch.
    return LlamaCppRunner(_load(setup, draft_model=draft, logits_all=True))


def _load(setup: Setup, **settings: Any) -> Any:
    if not setup.gguf:
        raise BenchmarkError("llama.cpp needs the model as a GGUF file: give --gguf")
    cores = usable_cores()
    threads = {"n_threads": cores, "n_threads_batch": cores}
    return _import().Llama(setup.gguf, n_ctx=CONTEXT, verbose=False, **threads, **settings)


def _import() -> Any:
    try:
        import llama_cpp
        import llama_cpp.llama_speculative
    except ImportError as error:
        raise BenchmarkError(f"llama-cpp-python cannot be imported ({error}): {REMEDY}") from error
    return llama_cpp
