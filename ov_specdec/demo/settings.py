"""A visitor's settings."""

from dataclasses import dataclass
from typing import Any, Literal

from ov_specdec.text.prompt import Prompt


@dataclass(frozen=True)
class Settings:
    """A prompt with its options. temperature 0 is greedy; top_k 0 and top_p 1 keep all tokens."""

    prompt: Prompt
    max_new_tokens: int = 128
    draft_length: int | Literal["auto"] = "auto"
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None

    @property
    def samples(self) -> bool:
        """Whether tokens are sampled."""
        return self.temperature > 0

    def options(self) -> dict[str, Any]:
        """Keyword arguments for `SpeculativePipeline.stream`."""
        options: dict[str, Any] = {
            "max_new_tokens": self.max_new_tokens,
            "num_assistant_tokens": self.draft_length,
            # Both runs prefill the prompt; otherwise the second would take it from the cache.
            "cache_prompt": False,
        }
        if self.samples:
            names = ("temperature", "top_p", "top_k", "seed")
            options.update({name: getattr(self, name) for name in names})
        return options
