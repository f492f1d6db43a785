"""Made-up records of rounds and steps."""

from collections.abc import Iterator
from typing import Any

from ov_specdec.planning.costs import Role
from ov_specdec.results.stats import PassStats, RoundStats


def a_round(
    drafted: int = 0,
    accepted: int = 0,
    seconds: float = 1.0,
    drafting: float = 0.0,
    size: int | None = None,
    **more: Any,
) -> RoundStats:
    return RoundStats(
        drafted,
        accepted,
        accepted + 1,
        drafting,
        seconds,
        0.0,
        seconds + drafting,
        pass_tokens=1 + drafted if size is None else size,
        source=more.pop("source", "model"),
        **more,
    )


def passes_of(stats: RoundStats) -> Iterator[tuple[Role, PassStats]]:
    """The passes that a round was, of a sequence that had the models to itself.

    The draft model's first pass has fed what it lacked beside the draft tokens. All of its passes
    take the same time for a token.
    """
    drafted, fed = stats.num_drafted, stats.draft_pass_tokens
    sizes = [fed - drafted + 1, *[1] * (drafted - 1)] if fed else []
    seconds = stats.draft_seconds / max(fed, 1)
    for size in sizes:
        yield "draft", PassStats(size, 0, 0, size * seconds)
    yield "main", PassStats(stats.pass_tokens, 0, 0, stats.verify_seconds)
