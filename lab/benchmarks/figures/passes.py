"""What forward passes cost, with batch invariance and without it: the promise's price."""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from time import perf_counter

from lab.benchmarks.figures.given import Given
from lab.benchmarks.figures.requests import compact
from lab.benchmarks.measuring import Measurements, in_turns
from lab.benchmarks.record import Key, Row
from lab.benchmarks.texts import long_text
from ov_specdec import SpeculativePipeline
from ov_specdec.runner.cached_sequence import CachedSequence, alone, forward

SIZES = (1, 2, 5, 9)
"""Tokens of passes over one sequence."""

SEQUENCES = 8
"""Of a pass over one token each; a pass over as many tokens of one sequence is compared."""

FORMS = {"invariant": "auto", "usual": False}
"""Forms of passes by the argument `batch_invariant`."""


class Sequences:
    """Sequences of one model with so many cached tokens."""

    def __init__(self, pipeline: SpeculativePipeline, text: list[int], cached: int) -> None:
        self._texts = [text[31 * n : 31 * n + cached + 1] for n in range(SEQUENCES)]
        self._more = text[:SEQUENCES]
        runner, new = pipeline.main.runner, partial(CachedSequence, num_prompt_tokens=cached)
        # The last token is one of an answer: those of a prompt are read two or more at a time.
        self._caches = [new(runner, object()) for _ in self._texts]
        for cache, own in zip(self._caches, self._texts, strict=True):
            alone(cache.advance(own[:-1], num_rows=1))

    def one(self, size: int) -> float:
        """Seconds of a pass over so many tokens of one sequence, after another such."""
        for _ in range(2):
            draft = self._more[: size - 1]
            start = perf_counter()
            alone(self._caches[0].advance(self._texts[0], draft, size))
            seconds = perf_counter() - start
        return seconds

    def each(self) -> float:
        """Seconds of a pass over one token of each sequence, after another such."""
        for _ in range(2):
            steps = [
                cache.advance(own, num_rows=1)
                for cache, own in zip(self._caches, self._texts, strict=True)
            ]
            for waiting in steps:
                next(waiting)
            start = perf_counter()
            forward(self._caches, [cache.span(1) for cache in self._caches])
            seconds = perf_counter() - start
            for waiting in steps:
                alone(waiting)
        return seconds

    def discard(self) -> None:
        """Free the memory."""
        for cache in self._caches:
            cache.discard()


def passes(given: Given, pairs: Sequence[str], cached: Sequence[int], rounds: int) -> Measurements:
    """Milliseconds of passes by their form, interleaved."""
    for pair in given.known(pairs):
        settings = {"max_batch_size": SEQUENCES, "static_shapes": "none"}
        with ExitStack() as stack:
            pipelines = {
                form: stack.enter_context(
                    given.pairs[pair].pipeline("none", batch_invariant=on, **settings)
                )
                for form, on in FORMS.items()
            }
            text = next(iter(pipelines.values())).tokenizer.encode(long_text())
            for length in cached:
                made = {form: Sequences(p, text, length) for form, p in pipelines.items()}
                for turn in range(rounds):
                    for form in in_turns(list(made), turn):
                        about: Key = {"pair": pair, "cached": length, "form": form}
                        yield {"turn": turn, "prompt": turn, **about}, partial(measured, made[form])
                for sequences in made.values():
                    sequences.discard()


def measured(sequences: Sequences) -> Row:
    """Milliseconds by the name of the pass."""
    times = {f"{size} of one": 1000 * sequences.one(size) for size in (*SIZES, SEQUENCES)}
    return compact({**times, f"1 of {SEQUENCES}": 1000 * sequences.each()})
