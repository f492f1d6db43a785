"""Plain and speculative decoding compared: on one prompt, and over a sweep of temperatures."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, Literal

import pandas as pd

from ov_specdec.cache.slot import common_prefix
from ov_specdec.errors import OptionError
from ov_specdec.generation.text_generator import GenerationStream
from ov_specdec.measure.methods import interleave
from ov_specdec.options.generation import PLAIN
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.results.chunks import Chunk, ResultBuilder
from ov_specdec.results.stats import FinishReason, GenerationStats
from ov_specdec.text.chat_template import Message
from ov_specdec.text.prompt import Prompt

SWEPT_TEMPERATURES = (0.0, 0.3, 0.6, 0.9, 1.2, 1.5)
REPEATS = 3
SWEEP_TOKENS = 64
"""Maximum tokens of each run of the sweep, and of the example on the page."""

NUM_STEPS = len(SWEPT_TEMPERATURES) * REPEATS

STOPPED = "Stopped."

Chunks = GenerationStream | Generator[Chunk, None, None]


@dataclass
class Run:
    """A generation so far. Times in seconds, without pauses between chunks."""

    output: ResultBuilder = field(default_factory=ResultBuilder)
    outcome: Literal["not started", "running"] | FinishReason = "not started"
    seconds: float = 0.0

    @property
    def is_complete(self) -> bool:
        """Whether the generation ended by itself."""
        return self.outcome in ("stop", "length")

    @property
    def tokens_per_second(self) -> float:
        """Tokens so far divided by seconds so far, prefill included."""
        return len(self.output.token_ids) / self.seconds if self.seconds else 0.0

    @property
    def chunks(self) -> list[Chunk]:
        """The chunks with tokens: the last one of a cancelled generation has none."""
        return [chunk for chunk in self.output.chunks if chunk.token_ids]

    @property
    def rounds(self) -> list[list[Chunk]]:
        """The chunks, round by round: the main model's own token ends a round."""
        rounds: list[list[Chunk]] = [[]]
        for chunk in self.chunks:
            rounds[-1].append(chunk)
            if not chunk.from_draft:
                rounds.append([])
        return [chunks for chunks in rounds if chunks]

    def follow(self, chunks: Chunks) -> Iterator[None]:
        """Read all chunks, and pause after each."""
        if self.outcome != "cancelled":  # it may be before it begins
            self.outcome = "running"
        with closing(chunks):
            start = perf_counter()
            for chunk in chunks:
                self.seconds += perf_counter() - start
                self.output.add(chunk, self.seconds)
                self.outcome = chunk.finish_reason or self.outcome
                yield
                start = perf_counter()


@dataclass
class Comparison:
    """Both runs, so far.

    message: the visitor's, in a conversation. samples: whether the texts are independent samples.
    """

    models: str = ""
    message: str = ""
    samples: bool = False
    plain: Run = field(default_factory=Run)
    speculative: Run = field(default_factory=Run)

    def compare(
        self, stream: Callable[..., Chunks], options: Mapping[str, Any]
    ) -> Iterator["Comparison"]:
        """Decode plainly, then speculatively; yields itself after each piece of output.

        The runs are sequential, since they would otherwise compete for cores. What has not ended
        when this is closed, or raises, is cancelled. stream: starts a generation with options.
        Raises `OptionError` for an invalid prompt or option.
        """
        try:
            for run, own in ((self.plain, {**options, **PLAIN}), (self.speculative, options)):
                for _ in run.follow(stream(**own)):
                    yield self
                    if self.status == STOPPED:
                        return
        finally:
            self.stop()

    def stop(self) -> None:
        """Cancel what has not ended, at its next chunk. Thread-safe."""
        for run in (self.plain, self.speculative):
            if not run.is_complete:
                run.outcome = "cancelled"

    @property
    def status(self) -> str:
        """Which of the two runs is in progress, and how both ended."""
        if "cancelled" in (self.plain.outcome, self.speculative.outcome):
            return STOPPED
        if self.plain.outcome == "not started":
            return "Ready."
        if self.speculative.outcome == "not started":
            return "1 of 2: plain decoding."
        return "Done." if self.speculative.is_complete else "2 of 2: speculative decoding."

    @property
    def ratio(self) -> float | None:
        """Tokens per second of speculative over plain decoding, once both are complete."""
        if self.plain.is_complete and self.speculative.is_complete:
            return self.speculative.tokens_per_second / self.plain.tokens_per_second
        return None

    @property
    def note(self) -> str:
        """Whether both texts are the same, and if not, why; empty until both runs end."""
        if self.ratio is None:
            return ""
        ids, others = self.plain.output.token_ids, self.speculative.output.token_ids
        if ids == others:
            return "Both texts are the same, token for token."
        if self.samples:
            samples = "independent samples from the same distribution"
            return f"The texts differ, as they should: they are {samples}."
        return (
            f"The texts differ after {common_prefix(ids, others)} tokens: the two most likely "
            "tokens were nearly tied there, and a pass over several tokens rounds differently from "
            "a pass over one. Start the demo with --batch-invariant true to make both the same."
        )


def options_of(form: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments for `SpeculativePipeline.stream`, from the controls of the page.

    Sliders return whole numbers as floats, an empty field None.
    """
    options = {
        "max_new_tokens": form["max_new_tokens"] or None,
        "num_assistant_tokens": form["draft_length"],
        # Both runs prefill the prompt; otherwise the second would take it from the cache.
        "cache_prompt": False,
    }
    if form["temperature"] > 0:
        options.update({name: form[name] for name in ("temperature", "top_p", "seed")})
        options["top_k"] = int(form["top_k"])
    return options


def messages_of(turns: Sequence[Comparison], system: str = "") -> list[Message]:
    """A conversation up to the last message, for `SpeculativePipeline.stream`.

    Answers are those of plain decoding, which are complete even if a visitor stopped the other run.
    """
    if not turns:
        raise OptionError("the conversation is empty: send a message first")
    *earlier, last = turns
    if not last.message.strip():
        raise OptionError("the message is empty: write one")
    messages: list[Message] = [{"role": "system", "content": system}] if system.strip() else []
    for turn in earlier:
        if not turn.plain.output.text:  # it was stopped before
            continue
        messages.append({"role": "user", "content": turn.message})
        messages.append({"role": "assistant", "content": turn.plain.output.text})
    return [*messages, {"role": "user", "content": last.message}]


def sweep(
    pipeline: SpeculativePipeline, prompt: Prompt, form: Mapping[str, Any]
) -> Iterator[pd.DataFrame]:
    """Measure all temperatures, interleaved; yields a table of medians after each step."""
    # Without a seed, since draft lengths are not adaptive with one.
    most = min(form["max_new_tokens"] or SWEEP_TOKENS, SWEEP_TOKENS)
    given = {**form, "max_new_tokens": most, "seed": None}

    def run(own: Mapping[str, Any], temperature: float) -> GenerationStats:
        options = {**options_of({**given, "temperature": temperature}), **own}
        return pipeline.generate(prompt, **options, ignore_eos=True).stats

    methods = {"plain": partial(run, PLAIN), "speculative": partial(run, {})}
    rows = []
    for step, turn in enumerate(interleave(methods, SWEPT_TEMPERATURES * REPEATS)):
        temperature = SWEPT_TEMPERATURES[step % len(SWEPT_TEMPERATURES)]
        for name, stats in turn.items():
            rows.append((temperature, name, stats.tokens_per_second, stats.acceptance_rate))
        table = pd.DataFrame(rows, columns=["temperature", "method", "tokens/s", "acceptance"])
        yield table.groupby(["temperature", "method"], as_index=False).median()
