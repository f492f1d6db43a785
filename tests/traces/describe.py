"""How a run is described: models, limits, and what is done one after the other."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ov_specdec.drafters.factory import DrafterKind, DrafterName
from ov_specdec.planning.costs import CostCurve


@dataclass(frozen=True)
class Model:
    """A model in place of a compiled one.

    drift: how far its logits are from those of a model with 0; 16 is about what they span.
    block_size: of a paged KV cache. memory: tokens that the KV cache has room for; None: as many as
    one sequence may have, or what the device allows. static_shapes: numbers of tokens that it is
    compiled for once more. is_invariant: passes have the batch-invariant form. max_masked: stale
    entries of states that are kept. ticks: of the clock that a pass over one token takes, and that
    each token more adds. fails_at: of its passes, counted from 0, those that fail.
    """

    kv: Literal["paged", "stateful"] = "paged"
    drift: float = 0.0
    max_length: int = 128
    block_size: int = 4
    memory: int | None = None
    static_shapes: tuple[int, ...] = ()
    is_invariant: bool = False
    max_masked: int | None = None
    ticks: tuple[float, float] = (1.0, 0.1)
    fails_at: tuple[int, ...] = ()


@dataclass(frozen=True)
class Ask:
    """A prompt joins the batch. `{a}` in it is the whole text of a prompt before."""

    key: str
    prompt: str
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Step:
    """So many steps of the batch; None: until all of its prompts have ended."""

    times: int | None = 1


@dataclass(frozen=True)
class Cancel:
    """A prompt is cancelled."""

    key: str


Action = Ask | Step | Cancel


def add(key: str, prompt: str, **options: Any) -> Ask:
    """A prompt that joins the batch."""
    return Ask(key, prompt, options)


FINISH = Step(None)


@dataclass(frozen=True)
class Run:
    """One run: its name, what there is, and what is done.

    drafter, max_batch_size: as a pipeline has them. pairing: of a draft model with other tokens.
    prefill: most tokens of a prompt that a pass reads beside answers; None: the usual number.
    curve: what passes cost, for adaptive lengths; None: the nominal cost curve.
    """

    name: str
    actions: tuple[Action, ...]
    main: Model = field(default_factory=Model)
    draft: Model | None = None
    drafter: DrafterName | DrafterKind = "none"
    pairing: Literal["retokenize"] | None = None
    max_batch_size: int = 16
    prefill: int | None = None
    curve: CostCurve | None = None


def run(name: str, *actions: Action, draft: Model | None = None, **more: Any) -> Run:
    """`Run`, which drafts with the draft model there is, and ends when all prompts have."""
    drafter = more.pop("drafter", "none" if draft is None else "model")
    return Run(name, (*actions, FINISH), draft=draft, drafter=drafter, **more)
