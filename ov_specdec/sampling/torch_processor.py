"""Logits processors of transformers, which take and return torch tensors with a batch axis."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ov_specdec.logits import Logits


def is_of_transformers(function: Callable[..., Any]) -> bool:
    """Whether it is a `transformers.LogitsProcessor`, without importing transformers."""
    names = {(each.__module__, each.__name__) for each in type(function).__mro__}
    return ("transformers.generation.logits_process", "LogitsProcessor") in names


@dataclass(frozen=True)
class TorchProcessor:
    """Applies one to the tokens so far and one row of logits [vocab]."""

    processor: Callable[..., Any]

    def __call__(self, tokens: Sequence[int], logits: Logits) -> Any:
        """The processor's row [vocab], of a batch of one."""
        import torch  # installed, since the processor needs it

        ids = torch.tensor([list(tokens)], dtype=torch.long)
        return self.processor(ids, torch.from_numpy(logits.copy())[None])[0].numpy()
