"""The decoding core around scripted models: all that knows how it is built."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any
from unittest.mock import patch

import numpy as np

from ov_specdec.drafters.factory import kind_of
from ov_specdec.engine.answers import Answers
from ov_specdec.engine.engine import Engine
from ov_specdec.engine.loop import EngineLoop
from ov_specdec.engine.scheduler import StepLimits
from ov_specdec.generation.batch import Batch
from ov_specdec.generation.sequence_factory import SequenceFactory
from ov_specdec.generation.text_generator import TextGenerator
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.planning.costs import NOMINAL, Costs
from ov_specdec.planning.policies import LearnedStats
from ov_specdec.runner.paged import PagedModel
from ov_specdec.runner.stateful import MAX_MASKED, StatefulModel
from ov_specdec.text.pairing import TokenizerPair
from tests.traces.compiled import Compiled, Device
from tests.traces.describe import Model, Run
from tests.traces.journal import Journal
from tests.traces.letters import MAIN, OTHER, Letters, Pieces
from tests.traces.script import Script


@contextmanager
def determined(journal: Journal) -> Iterator[None]:
    """Nothing depends on time or chance."""
    seeds, make = count(), np.random.default_rng
    with (
        patch("ov_specdec.engine.engine.perf_counter", lambda: journal.clock),
        patch("ov_specdec.engine.round.perf_counter", lambda: journal.clock),
        patch("ov_specdec.runner.cached_sequence.perf_counter", lambda: journal.clock),
        patch("numpy.random.default_rng", lambda: make(next(seeds))),
    ):
        yield


class Core:
    """The core, with the models of a run; `runners` by their role."""

    def __init__(self, run: Run, journal: Journal) -> None:
        other = OTHER if run.pairing else MAIN
        self.runners = {"main": _runner("main", run.main, MAIN, journal)}
        if run.draft is not None:
            self.runners["draft"] = _runner("draft", run.draft, other, journal)
        main, draft = self.runners["main"], self.runners.get("draft")
        usual = StepLimits(max_batch_size=run.max_batch_size)
        limits = usual if run.prefill is None else StepLimits(run.max_batch_size, run.prefill)
        costs = _costs(run)
        self.engine = Engine(main, draft, limits, costs)
        tokenizer: Any = MAIN
        learned, size = LearnedStats(costs), len(MAIN.tokens)
        kind, ends = kind_of(run.drafter), frozenset[int]()
        sequences = SequenceFactory(main, kind, ends, draft, _pairing(run), learned)
        loop, answers = EngineLoop(self.engine), Answers(main)
        self.generator = TextGenerator(sequences, loop, answers, tokenizer, size)
        self.batch: Batch[str] = Batch(
            self.generator, lambda _, **options: GenerationOptions(**options)
        )


def _runner(role: str, model: Model, letters: Letters, journal: Journal) -> Any:
    """What runs passes of a model."""
    device = Device(role, model, Script(letters, model.drift), journal)
    compiled: Any = Compiled(device)
    known: dict[str, Any] = {"max_length": model.max_length, "vocab_size": len(letters.tokens)}
    if model.kv == "stateful":
        max_masked = MAX_MASKED if model.max_masked is None else model.max_masked
        axes = {"keys": 2, "places": 2}
        return StatefulModel(compiled, axes, max_masked=max_masked, **known)
    paged = PagedModel(compiled, is_invariant=model.is_invariant, **known)
    for size in model.static_shapes:
        static: Any = Compiled(device, size)
        paged.add_static(size, static)
    # As many as the tensors have room for, unless the run says so.
    paged.limit(64 * model.max_length if model.memory is None else model.memory)
    return paged


def _pairing(run: Run) -> TokenizerPair | None:
    if run.pairing is None:
        return None
    pieces: tuple[Any, Any] = Pieces(MAIN), Pieces(OTHER)
    return TokenizerPair(*pieces, len(MAIN.tokens), len(OTHER.tokens), run.pairing)


def _costs(run: Run) -> Costs:
    curve = run.curve
    if curve is None:
        return Costs(NOMINAL)
    curve = replace(curve, main=replace(curve.main, static=frozenset(run.main.static_shapes)))
    if run.draft is not None and curve.draft is not None:
        static = frozenset(run.draft.static_shapes)
        curve = replace(curve, draft=replace(curve.draft, static=static))
    return Costs(curve)
