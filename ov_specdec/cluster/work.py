"""What the ingress sends to a replica."""

from dataclasses import dataclass

from ov_specdec.openai import Ask
from ov_specdec.server.about import About
from ov_specdec.stats import BatchInvariance
from ov_specdec.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Work:
    """A request. tenant: whose cached prefixes may be used. prefixes: see `hash_prefixes`.

    hint: of requests that are likely to share prefixes, the same.
    """

    ask: Ask
    tenant: str | None
    prefixes: tuple[bytes, ...]
    hint: bytes | None = None


@dataclass(frozen=True)
class ModelInfo:
    """What the ingress needs of the models. max_length: tokens of prompt and output."""

    tokenizer: Tokenizer
    max_length: int
    batch_invariant: BatchInvariance
    about: About
