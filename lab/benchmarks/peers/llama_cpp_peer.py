"""llama.cpp as a peer, by llama-cpp-python: plain, and with its prompt lookup."""

from collections.abc import Callable
from time import perf_counter
from typing import Any

from lab.benchmarks.peers.asks import Ask, BenchmarkError, Measurement, Setup
from ov_specdec.models.devices import usable_cores

REMEDY = "pip install --no-binary :all: llama-cpp-python"
CONTEXT = 4096


class LlamaCppRunner:
    """Runs a `llama_cpp.Llama`. Implements `Runner`, but for passes and draft tokens: not told."""

    def __init__(self, llama: Any, lookup: Callable[..., Any]) -> None:
        self._llama = llama
        self._lookup = lookup

    def run(self, ask: Ask, length: int | None) -> Measurement:
        """See `Runner`. Draft tokens are those of its prompt lookup."""
        self._llama.reset()  # or it would read on from the last prompt's cache
        self._llama.draft_model = self._lookup(num_pred_tokens=length) if length else None
        token_ids = list[int]()
        start = perf_counter()
        for token in self._llama.generate(list(ask.prompt_ids), temp=ask.temperature):
            if not token_ids:
                first = perf_counter() - start
            token_ids.append(token)
            if len(token_ids) == ask.max_new_tokens:
                break
        return Measurement(token_ids, perf_counter() - start, first)


def load(setup: Setup, *, drafts: bool = False) -> LlamaCppRunner:
    """The GGUF file. drafts: with room for the logits of draft tokens behind a long prompt."""
    if not setup.gguf:
        raise BenchmarkError("llama.cpp needs the model as a GGUF file: give --gguf")
    cores = usable_cores()
    threads = {"n_threads": cores, "n_threads_batch": cores}
    try:
        import llama_cpp
        from llama_cpp.llama_speculative import LlamaPromptLookupDecoding
    except ImportError as error:
        raise BenchmarkError(f"llama-cpp-python cannot be imported ({error}): {REMEDY}") from error
    llama = llama_cpp.Llama(
        str(setup.gguf), n_ctx=CONTEXT, logits_all=drafts, verbose=False, **threads
    )
    return LlamaCppRunner(llama, LlamaPromptLookupDecoding)
