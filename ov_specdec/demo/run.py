"""A running generation: its text by origin, and statistics so far."""

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby
from time import perf_counter
from typing import Literal

from ov_specdec.chunks import Chunk
from ov_specdec.generation import GenerationStream
from ov_specdec.origins import Origin
from ov_specdec.stats import FinishReason, GenerationStats

Outcome = Literal["not started", "running"] | FinishReason


@dataclass(frozen=True)
class Piece:
    """Output of one origin. rejected: the text of draft tokens rejected at its position."""

    text: str
    origin: Origin
    rejected: str = ""

    @property
    def ends_round(self) -> bool:
        """Whether the main model's own token closes the round here."""
        return self.origin != "draft"


@dataclass
class Run:
    """A generation so far. Times in seconds; stats come with the last tokens.

    outcome: the finish reason, once there is one. accepted, rejected: draft tokens so far.
    """

    pieces: list[Piece] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    outcome: Outcome = "not started"
    seconds: float = 0.0
    first_token_seconds: float | None = None
    accepted: int = 0
    rejected: int = 0
    stats: GenerationStats | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the generation ended by itself."""
        return self.outcome in ("stop", "length")

    @property
    def text(self) -> str:
        """The output so far."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def tokens_per_second(self) -> float:
        """Tokens so far divided by seconds so far, prefill included."""
        return len(self.token_ids) / self.seconds if self.seconds else 0.0

    @property
    def num_rounds(self) -> int:
        """Passes of the main model with output."""
        return sum(piece.ends_round for piece in self.pieces)

    @property
    def draft_lengths(self) -> list[int]:
        """The draft lengths in order; empty before the end."""
        planned = [round_.planned for round_ in self.stats.rounds[1:]] if self.stats else []
        return [length for length, _ in groupby(planned)]

    @property
    def rounds(self) -> list[list[Piece]]:
        """The pieces, round by round."""
        rounds: list[list[Piece]] = [[]]
        for piece in self.pieces:
            rounds[-1].append(piece)
            if piece.ends_round:
                rounds.append([])
        return [pieces for pieces in rounds if pieces]

    def follow(
        self,
        chunks: GenerationStream | Generator[Chunk, None, None],
        decode: Callable[[list[int]], str],
    ) -> Iterator[None]:
        """Read all chunks, and pause after each.

        Only the time of the generation counts, not the pauses.
        """
        self.outcome = "running"
        with closing(chunks):
            while self.outcome == "running":
                start = perf_counter()
                chunk = next(chunks)
                self.seconds += perf_counter() - start
                self._take(chunk, decode)
                yield

    def _take(self, chunk: Chunk, decode: Callable[[list[int]], str]) -> None:
        if chunk.token_ids:  # the last chunk of a cancelled generation has none
            rejected = decode(chunk.rejected_ids) if chunk.rejected_ids else ""
            self.pieces.append(Piece(chunk.text, chunk.origin, rejected))
            self.token_ids += chunk.token_ids
            self.rejected += len(chunk.rejected_ids)
            if chunk.from_draft:
                self.accepted += len(chunk.token_ids)
            if self.first_token_seconds is None:
                self.first_token_seconds = self.seconds
        if chunk.finish_reason is not None:
            self.outcome, self.stats = chunk.finish_reason, chunk.stats
