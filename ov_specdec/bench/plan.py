"""How much a benchmark measures: the whole of it, or a quick look."""

from dataclasses import dataclass

CONCURRENT = (
    "plain",
    "constant-2",
    "constant-4",
    "adaptive",
    "genai-plain",
    "genai-draft-2",
    "genai-draft-4",
)
"""Methods of a benchmark under load."""

CONCURRENT_QUICK = ("plain", "adaptive", "genai-plain")


@dataclass(frozen=True)
class Plan:
    """The extent of a benchmark, each part of which an option can change.

    methods: names of methods and groups. num_prompts: how many of the prompts are used, from the
    first. lengths, temperatures, pass_sizes: what the sweeps behind the plots go through; a
    temperature of 0 is greedy decoding. sweep_prompts, sweep_rounds: how often they do.
    """

    methods: tuple[str, ...]
    num_prompts: int | None
    rounds: int
    max_new_tokens: int
    lengths: tuple[int, ...]
    temperatures: tuple[float, ...]
    pass_sizes: tuple[int, ...]
    sweep_prompts: int
    sweep_rounds: int


FULL = Plan(
    methods=("all",),
    num_prompts=None,
    rounds=5,
    max_new_tokens=128,
    lengths=tuple(range(1, 17)),
    temperatures=(0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2),
    pass_sizes=(*range(1, 17), 24, 32),
    sweep_prompts=4,
    sweep_rounds=2,
)
QUICK = Plan(
    methods=("plain", "adaptive", "constant-4", "genai-plain", "genai-draft-4"),
    num_prompts=2,
    rounds=2,
    max_new_tokens=32,
    lengths=(1, 2, 4, 8),
    temperatures=(0.0, 0.5, 1.0),
    pass_sizes=(1, 2, 4, 8),
    sweep_prompts=1,
    sweep_rounds=2,
)
