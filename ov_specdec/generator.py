"""Text in, text out: encodes the prompt, runs the engine, and turns its tokens into text."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ov_specdec.config import GenerationOptions
from ov_specdec.drafters import Drafter
from ov_specdec.engine import FinishReason, Round, Text, decode, speculate
from ov_specdec.errors import OptionError
from ov_specdec.experience import Experience
from ov_specdec.rules import Rule
from ov_specdec.sampling import make_rules
from ov_specdec.session import Session
from ov_specdec.stats import GenerationStats
from ov_specdec.streaming import TextStream
from ov_specdec.tokenizer import Tokenizer

Origin = Literal["draft", "correction", "bonus", "plain"]
"""Where tokens come from: candidates that stood; the main model's own token in place of a candidate
that fell; its own after all candidates stood; its own in a round without candidates."""


@dataclass(frozen=True)
class Chunk:
    """A piece of output: tokens of one round that have one origin.

    text: what may be shown now; a piece of text may come later than its tokens. rejected_ids: the
    candidates that fell, on the correction that took the place of the first of them. finish_reason
    and stats: set on the last chunk only; "stop" is an end-of-sequence token or a stop string,
    "length" the budget.
    """

    text: str
    token_ids: list[int]
    origin: Origin
    rejected_ids: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stats: GenerationStats | None = None

    @property
    def from_draft(self) -> bool:
        """Whether the tokens are candidates that stood, or else the main model's own."""
        return self.origin == "draft"


@dataclass(frozen=True)
class GenerationResult:
    """A finished generation. `text` and `token_ids` hold the output without the prompt."""

    text: str
    token_ids: list[int]
    finish_reason: FinishReason
    stats: GenerationStats


@dataclass(frozen=True)
class Generator:
    """A main model's session, its tokenizer and a way to make drafters.

    vocab_size: ids below it have a token. eos_token_ids: what ends a text unless options say so.
    make_drafter: a drafter for one generation, given its options and the rule by which a draft
    model chooses candidates; None where the options ask for plain decoding. experience: what
    generations before have taught about the speed of the models.
    """

    main: Session
    tokenizer: Tokenizer
    vocab_size: int
    eos_token_ids: frozenset[int]
    make_drafter: Callable[[GenerationOptions, Rule], Drafter | None]
    experience: Experience = field(default_factory=Experience)

    def stream(self, prompt: str | Sequence[int], options: GenerationOptions) -> Iterator[Chunk]:
        """Check prompt and options, then generate: yields each round's tokens as they come."""
        self._check_ids("an option", options.token_ids())
        ids = self.encode(prompt, options)
        eos = self.eos_token_ids if options.eos_token_ids is None else options.eos_token_ids
        text = Text(ids.copy(), min(len(ids) + options.max_new_tokens, self.main.max_length), eos)
        rules = make_rules(options, prompt_length=len(ids), eos_token_ids=eos)
        drafter = self.make_drafter(options, rules.draft)
        if drafter is None:
            rounds = decode(self.main, rules.main, text)
        else:
            policy = options.policy(drafter.sources, self.experience)
            rounds = speculate(self.main, drafter, policy, rules.main, text)
        shown = TextStream(self.tokenizer.decode, ids, options.stops)
        return _chunks(rounds, text, shown, GenerationStats(len(ids)))

    def encode(self, prompt: str | Sequence[int], options: GenerationOptions) -> list[int]:
        """The prompt's ids; `OptionError` if it is empty, too long or holds no valid id."""
        if not isinstance(prompt, str):
            ids = list(prompt)
        elif prompt and options.apply_chat_template and self.tokenizer.chat_template:
            ids = self.tokenizer.encode_chat(prompt)
        else:
            ids = self.tokenizer.encode(prompt) if prompt else []
        if not ids:
            raise OptionError("the prompt is empty: give at least one token of text")
        if len(ids) >= self.main.max_length:
            raise OptionError(
                f"the prompt has {len(ids)} tokens, the model's context {self.main.max_length} "
                "with the output: shorten the prompt"
            )
        self._check_ids("the prompt", ids)
        return ids

    def _check_ids(self, where: str, ids: Iterable[int]) -> None:
        for token in ids:
            if not 0 <= token < self.vocab_size:
                raise OptionError(
                    f"{where} holds token id {token}: the model has 0 to {self.vocab_size - 1}"
                )


def _chunks(
    rounds: Iterator[Round], text: Text, shown: TextStream, stats: GenerationStats
) -> Iterator[Chunk]:
    """The engine's rounds as chunks of text, up to the first stop string."""
    for round_ in rounds:
        chunks = []
        for piece in _pieces(round_):
            kept = piece.token_ids[: shown.push(piece.token_ids)]
            chunks.append(replace(piece, text=shown.take(), token_ids=kept))
            if shown.stopped:
                break
        num_generated = sum(len(chunk.token_ids) for chunk in chunks)
        stats.rounds.append(replace(round_.stats, num_generated=num_generated))
        reason = "stop" if shown.stopped else text.finish_reason
        if reason is not None:
            tail = chunks[-1].text + shown.finish()
            chunks[-1] = replace(chunks[-1], text=tail, finish_reason=reason, stats=stats)
        yield from chunks
        if shown.stopped:
            return


def _pieces(round_: Round) -> list[Chunk]:
    """A round's tokens by origin, yet without text."""
    cut = round_.num_from_draft
    accepted, own = round_.tokens[:cut], round_.tokens[cut:]
    rejected = round_.candidates[cut:]
    pieces = [Chunk("", accepted, "draft")] if accepted else []
    if own and rejected:
        pieces.append(Chunk("", own, "correction", rejected))
    elif own:
        pieces.append(Chunk("", own, "bonus" if round_.candidates else "plain"))
    return pieces


def collect(chunks: Iterable[Chunk]) -> GenerationResult:
    """The result that a stream of chunks, read to its end, amounts to."""
    texts, token_ids = [], []
    for chunk in chunks:
        texts.append(chunk.text)
        token_ids += chunk.token_ids
        if chunk.finish_reason is not None and chunk.stats is not None:
            return GenerationResult("".join(texts), token_ids, chunk.finish_reason, chunk.stats)
    raise OptionError("the stream ended before its last chunk: read it from the beginning")
