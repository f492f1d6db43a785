"""Messages between ingress and replicas."""

from dataclasses import dataclass

from ov_specdec.openai import Ask
from ov_specdec.server.about import About
from ov_specdec.stats import BatchInvariance
from ov_specdec.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Work:
    """A request. tenant: namespace of its cached prefixes. prefixes: see `hash_prefixes`.

    hint: see `hash_key`.
    """

    ask: Ask
    tenant: str | None
    prefixes: tuple[bytes, ...]
    hint: bytes | None = None


@dataclass(frozen=True)
class ModelInfo:
    """A model as the ingress sees it. max_length: tokens of prompt and output."""

    tokenizer: Tokenizer
    max_length: int
    batch_invariant: BatchInvariance
    about: About
