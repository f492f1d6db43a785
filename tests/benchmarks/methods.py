"""Methods that run in turns: drafters of this project, constant lengths, openvino.genai."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from tempfile import TemporaryDirectory
from typing import Any

from ov_specdec import SpeculativePipeline
from tests.benchmarks.options import Models
from tests.benchmarks.peers.frameworks import genai
from tests.benchmarks.record import Row
from tests.benchmarks.texts import Prompts

GENAI, GENAI_LOOKUP = "genai", "genai-lookup"
WARM_UP = 24
"""Tokens of a generation of each method before the first turn."""


@dataclass(frozen=True)
class Method:
    """A method by its name: DRAFTER[:PAIRING][@LENGTH][#MARK]."""

    name: str

    @property
    def pipeline(self) -> str:
        """What methods have in common that share a pipeline."""
        return self.name.partition("#")[0].partition("@")[0]

    @property
    def length(self) -> int | None:
        """The constant length; None for that of the planner."""
        length = self.name.partition("#")[0].partition("@")[2]
        return int(length) if length else None

    def open(self, models: Models, settings: dict[str, Any]) -> SpeculativePipeline:
        """A pipeline for it and for those that share it."""
        drafter, _, pairing = self.pipeline.partition(":")
        return models.pipeline(drafter, pairing=pairing or None, **settings)


class Runs:
    """Methods with their models loaded. options: of generations."""

    def __init__(
        self, methods: Sequence[Method], models: Models, settings: dict[str, Any], options: Row
    ) -> None:
        self._options = options
        self._stack = ExitStack()
        self._pipelines: dict[str, SpeculativePipeline] = {}
        self._peers: dict[Method, Any] = {}
        for method in methods:
            if method.pipeline in (GENAI, GENAI_LOOKUP):
                scratch = self._stack.enter_context(TemporaryDirectory())
                load = genai.prompt_lookup if method.pipeline == GENAI_LOOKUP else genai.with_draft
                load = load if method.length else genai.plain
                self._peers[method] = load(replace(models, scratch=scratch), method.length)
            elif method.pipeline not in self._pipelines:
                pipeline = self._stack.enter_context(method.open(models, settings))
                self._pipelines[method.pipeline] = pipeline

    def __enter__(self) -> "Runs":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def encoded(self, prompts: Prompts) -> list[tuple[str, list[int]]]:
        """See `Prompts.ids`."""
        return prompts.ids(next(iter(self._pipelines.values())))

    def warm_up(self, prompt: list[int]) -> None:
        """Let costs be measured, and everybody generate once."""
        for pipeline in self._pipelines.values():
            pipeline.prepare()
            pipeline.generate(prompt, max_new_tokens=WARM_UP, cache_prompt=False)
        for peer in self._peers.values():
            peer.run(prompt, WARM_UP)

    def run(self, method: Method, prompt: list[int]) -> Row:
        """One generation: seconds after the first token, and what came of it."""
        if method in self._peers:
            return self._run_peer(method, prompt)
        length = {} if method.length is None else {"num_assistant_tokens": method.length}
        pipeline = self._pipelines[method.pipeline]
        stats = pipeline.generate(prompt, **self._options, **length).stats
        seconds, tokens = stats.seconds - stats.time_to_first_token, stats.generated_tokens - 1
        return {
            "seconds": seconds,
            "speed": tokens / seconds if tokens else None,
            "tokens": tokens,
            "passes": stats.main_passes - 1,
            "drafted": stats.drafted,
            "accepted": stats.accepted,
        }

    def _run_peer(self, method: Method, prompt: list[int]) -> Row:
        result = self._peers[method].run(prompt, self._options["max_new_tokens"])
        seconds = result.seconds - result.first_token_seconds
        tokens = len(result.token_ids) - 1
        return {
            "seconds": seconds,
            "speed": tokens / seconds,
            "tokens": tokens,
            "passes": result.main_passes - 1,
            "drafted": result.drafted,
            "accepted": result.accepted,
        }
