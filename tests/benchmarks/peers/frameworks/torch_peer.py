"""transformers on torch as a peer: plain and assisted generation, bf16."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from tests.benchmarks.peers.errors import BenchmarkError
from tests.benchmarks.peers.frameworks.same_tokenizer import require_same_tokenizer
from tests.benchmarks.peers.measurement import Measurement
from tests.benchmarks.peers.setup import Setup

REMEDY = "pip install torch"


@dataclass
class PassCount:
    """The passes of a model, counted by a hook on its forward."""

    passes: int = 0

    def watch(self, model: Any) -> None:
        """Count every pass of a torch module from now on."""

        def count(*_: Any) -> None:
            self.passes += 1

        model.register_forward_hook(count)


class FirstToken:
    """When the first token after the prompt arrived: a streamer, as transformers calls it."""

    def __init__(self) -> None:
        self._num_calls = 0
        self.time = 0.0

    def put(self, _value: Any) -> None:
        """The prompt comes first, then new tokens."""
        self._num_calls += 1
        if self._num_calls == 2:
            self.time = perf_counter()

    def end(self) -> None:
        """Nothing to do."""


class TorchRunner:
    """Runs transformers' `generate`. Implements `Runner`."""

    def __init__(self, main: Any, draft: Any = None) -> None:
        self._main = main
        self._draft = draft
        self._of_main, self._of_draft = PassCount(), PassCount()
        self._of_main.watch(main)
        if draft is not None:
            self._of_draft.watch(draft)

    def run(self, prompt_ids: Sequence[int], max_new_tokens: int) -> Measurement:
        """See `Runner`."""
        import torch

        self._of_main.passes = self._of_draft.passes = 0
        first = FirstToken()
        ids = torch.tensor([list(prompt_ids)])
        start = perf_counter()
        with torch.inference_mode():
            output = self._main.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                assistant_model=self._draft,
                max_new_tokens=max_new_tokens,
                do_sample=False,
                streamer=first,
            )
        seconds = perf_counter() - start
        token_ids = output[0, len(prompt_ids) :].tolist()
        passes, drafted = self._of_main.passes, self._of_draft.passes
        return Measurement(
            token_ids=token_ids,
            seconds=seconds,
            first_token_seconds=first.time - start,
            main_passes=passes,
            # A pass of the draft is a draft token; a pass of the main adds one token of its own.
            drafted=drafted or None,
            accepted=len(token_ids) - passes if drafted else None,
        )


def plain(setup: Setup, _length: int | None) -> TorchRunner:
    """`generate` with the main model's checkpoint."""
    load = _import_loader()
    return TorchRunner(load(_checkpoint("main", setup.main)))


def assisted(setup: Setup, _length: int | None) -> TorchRunner:
    """Assisted generation with the checkpoints of main and draft, all its settings at default."""
    require_same_tokenizer(setup)
    load = _import_loader()
    draft = load(_checkpoint("draft", setup.draft))
    return TorchRunner(load(_checkpoint("main", setup.main)), draft)


def _checkpoint(role: str, folder: str) -> str:
    checkpoint = Path(folder) / "checkpoint"
    if not (checkpoint / "config.json").is_file():
        raise BenchmarkError(f"no checkpoint: torch needs the {role} model's, in {checkpoint}")
    return str(checkpoint)


def _import_loader() -> Callable[[str], Any]:
    try:
        import torch
        from transformers import AutoModelForCausalLM
    except ImportError as error:
        raise BenchmarkError(f"torch cannot be imported ({error}): {REMEDY}") from error

    def load(checkpoint: str) -> Any:
        model: Any = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.bfloat16)
        # All methods generate the same number of tokens, past any end of sequence.
        model.generation_config.eos_token_id = None
        return model.eval()

    return load
