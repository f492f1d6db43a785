"""Methods that share this process and, where they can, their pipelines."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from ov_specdec.loading.source import open_source
from tests.benchmarks.options import Models
from tests.benchmarks.peers.frameworks import genai
from tests.benchmarks.peers.measurement import Measurement
from tests.benchmarks.peers.methods import split
from tests.benchmarks.peers.own import measure
from tests.benchmarks.peers.setup import Setup
from tests.benchmarks.record import Row

DRAFTERS = {"adaptive": "model", "constant": "model"}
"""The drafter of a family of this project, where that is not called like the drafter itself."""

PEERS: Mapping[str, tuple[Callable[[Setup], Any], Callable[[int | None], Any]]] = {
    "genai-plain": (genai.load_plain, lambda _: genai.greedy(genai.import_genai())),
    "genai-draft": (genai.load_with_draft, genai.drafting),
    "genai-prompt-lookup": (genai.load_prompt_lookup, genai.looking_up),
}
"""How the pipeline of a family of openvino.genai is loaded, and what tells it a draft length."""

WARM_UP = 24
"""Tokens of a generation of each method before it is measured."""


class InProcess:
    """Methods with their models loaded; one pipeline for all that differ in their length only.

    ends: whether an end-of-sequence token ends an output.
    """

    def __init__(
        self, models: Models, setup: Setup, methods: Sequence[str], *, ends: bool = False
    ) -> None:
        self._stack = ExitStack()
        self._ends = ends
        self._stop = set(open_source(models.main).eos_token_ids)
        self._default = "model" if models.draft else "suffix"
        self._own: dict[str, Any] = {}
        self._peers: dict[str, Any] = {}
        for family in dict.fromkeys(split(name)[0] for name in methods):
            drafter = self._drafter(family)
            if family in PEERS:
                self._peers[family] = PEERS[family][0](setup)
            elif drafter not in self._own:
                self._own[drafter] = self._stack.enter_context(models.pipeline(drafter))

    def __enter__(self) -> "InProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self._peers.clear()
        self._stack.close()

    def _drafter(self, family: str) -> Any:
        """Plain decoding goes through the pipeline that speculates by default."""
        return self._default if family == "plain" else DRAFTERS.get(family, family)

    def warm_up(self, methods: Sequence[str], prompt: list[int]) -> None:
        """Wait for static shapes and cost curves, and let everybody generate once."""
        for pipeline in self._own.values():
            pipeline.prepare()
        for name in methods:
            self.run(name, prompt, WARM_UP, 0.0)

    def run(self, name: str, prompt: list[int], max_new_tokens: int, temperature: float) -> Row:
        """One generation of a method, as a row."""
        family, length = split(name)
        if family in PEERS:
            config = PEERS[family][1](length)
            config.ignore_eos = not self._ends
            config.stop_token_ids = self._stop if self._ends else set()
            if temperature:
                config.do_sample, config.temperature = True, temperature
            runner = genai.GenaiRunner(self._peers[family], config)
            return as_row(runner.run(prompt, max_new_tokens))
        options: dict[str, Any] = {"ignore_eos": not self._ends}
        options |= {"temperature": temperature} if temperature else {}
        length = 0 if family == "plain" else length
        options |= {} if length is None else {"num_assistant_tokens": length}
        pipeline = self._own[self._drafter(family)]
        return as_row(measure(pipeline, prompt, max_new_tokens, options))


def as_row(measured: Measurement) -> Row:
    """Tokens per second after the first token, and counts."""
    return compact(
        {
            "speed": measured.speed,
            "tokens": len(measured.token_ids),
            "passes": measured.main_passes,
            "drafted": measured.drafted,
            "accepted": measured.accepted,
        }
    )


def compact(row: Mapping[str, Any]) -> Row:
    """A row with four digits a number, and nothing that was not told: the file is committed."""
    return {
        name: float(f"{value:.4g}") if isinstance(value, float) else value
        for name, value in row.items()
        if value is not None
    }
