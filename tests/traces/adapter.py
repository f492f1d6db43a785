"""The decoding core between scripted models and the runs: all that knows its names.

A core of another form needs another one of these, and nothing else. What it has to provide:

`determined(journal)`
    a context in which nothing depends on time or chance: the core's clock reads the journal's
    ticks, and generators of random numbers are made with seeds 0, 1, 2 and so on.

`Core(run, journal)`
    builds the core for a run, around the models of `compiled`, and has these methods:

    add, stream     begin a prompt, in the batch or to be read; errors of prompt and options rise
    step, read      what `Batch.step` returns; the next chunk of a stream, None at its end
    cancel, close   as `Batch` and `GenerationStream` have them
    is_done         whether the batch has no prompt under way
    rounds          the rounds of a prompt so far, as `RoundStats` has them
    queues          the prompts that run and those that wait, each in their order
    pools           what is known of the blocks of each paged KV cache, see `Pool`

Chunks and statistics are the public ones (`ov_specdec.Chunk`, `GenerationStats`). The names of
inputs, outputs and states are those of the models (`compiled`), and may stay what they are too.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any
from unittest.mock import patch

import numpy as np

from ov_specdec.cache.block_pool import BlockPool, NodeId
from ov_specdec.cache.slot import Beyond
from ov_specdec.drafters.factory import kind_of
from ov_specdec.engine.engine import Engine
from ov_specdec.engine.loop import EngineLoop
from ov_specdec.engine.scheduler import Limits
from ov_specdec.engine.sequence import Sequence as EngineSequence
from ov_specdec.generation.batch import Batch
from ov_specdec.generation.text_generator import GenerationStream, TextGenerator
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.planning.costs import NOMINAL, CostCurve, Costs, LiveCurve, PassCurve
from ov_specdec.planning.schedule import LearnedStats
from ov_specdec.results.chunks import Chunk
from ov_specdec.results.stats import RoundStats
from ov_specdec.runner.encoder_decoder import Encoder, EncoderDecoderModel
from ov_specdec.runner.paged import PagedModel
from ov_specdec.runner.stateful import MAX_MASKED, StatefulModel
from ov_specdec.text.pairing import TokenizerPair
from ov_specdec.text.prompt import TextToText
from tests.traces.compiled import Compiled, CompiledEncoder, Device
from tests.traces.describe import Curve, Model, Passes, Run
from tests.traces.journal import Journal
from tests.traces.letters import MAIN, OTHER, Letters, Pieces
from tests.traces.script import Script

DECODER_START = 0


@dataclass(frozen=True)
class Block:
    """A block whose content is known. parent: the block before it, or whose text it begins."""

    block: int
    parent: int | str
    tokens: Sequence[int]


@dataclass(frozen=True)
class Pool:
    """The blocks of a paged KV cache.

    size: blocks that there are memory for at present. users: sequences that hold a block, by block.
    kept: blocks that nobody holds but whose content is known, the first to be given up first.
    known: all blocks that can be found by content.
    """

    size: int
    users: Mapping[int, int]
    kept: Sequence[int]
    known: Sequence[Block]


@contextmanager
def determined(journal: Journal) -> Iterator[None]:
    """Nothing depends on time or chance."""
    seeds, make = count(), np.random.default_rng
    with (
        patch("ov_specdec.engine.engine.perf_counter", lambda: journal.clock),
        patch("ov_specdec.results.stats.perf_counter", lambda: journal.clock),
        patch("ov_specdec.runner.cached_sequence.perf_counter", lambda: journal.clock),
        patch("numpy.random.default_rng", lambda: make(next(seeds))),
    ):
        yield


class Core:
    """The core, with the models of a run."""

    def __init__(self, run: Run, journal: Journal) -> None:
        other = OTHER if run.pairing else MAIN
        self._runners = {"main": _runner("main", run.main, MAIN, journal)}
        if run.draft is not None:
            self._runners["draft"] = _runner("draft", run.draft, other, journal)
        main, draft = self._runners["main"], self._runners.get("draft")
        usual = Limits(max_batch_size=run.max_batch_size)
        limits = usual if run.prefill is None else Limits(run.max_batch_size, run.prefill)
        shapes = [frozenset(m.static_shapes) for m in (run.main, run.draft) if m is not None]
        costs = _costs(run.curve, *shapes)
        self._engine = Engine(main, draft, limits, costs)
        tokenizer: Any = MAIN
        has_source = run.main.kv == "encoder-decoder"
        self._generator = TextGenerator(
            main,
            EngineLoop(self._engine),
            tokenizer,
            len(MAIN.tokens),
            frozenset(),
            kind_of(run.drafter),
            draft,
            _pairing(run),
            LearnedStats(costs),
            text_to_text=TextToText(DECODER_START) if has_source else None,
        )
        self._batch: Batch[str] = Batch(
            self._generator, lambda _, **options: GenerationOptions(**options)
        )
        self._sequences: dict[str, EngineSequence] = {}
        self._streams: dict[str, GenerationStream] = {}

    def add(self, key: str, prompt: str, options: Mapping[str, Any]) -> None:
        """A prompt joins the batch."""
        self._batch.add(key, prompt, **options)
        self._sequences[key] = self._batch._running[key]

    def stream(self, key: str, prompt: str, options: Mapping[str, Any]) -> None:
        """A stream, as `TextGenerator.stream` makes it."""
        complete = GenerationOptions(**options)
        ids = self._generator.encode(prompt, complete)
        sequence = self._generator._begin(ids, complete)
        cancel = partial(self._generator.loop.cancel, sequence)
        self._sequences[key] = sequence
        self._streams[key] = GenerationStream(self._generator._chunks(sequence), cancel)

    def step(self) -> list[tuple[str, Chunk | BaseException]]:
        """One step of the batch."""
        return self._batch.step()

    def read(self, key: str) -> Chunk | None:
        """The next chunk of a stream; None at its end."""
        return next(self._streams[key], None)

    def cancel(self, key: str) -> None:
        """Cancel a prompt."""
        if key in self._streams:
            self._streams[key].cancel()
        else:
            self._batch.cancel(key)

    def close(self, key: str | None) -> None:
        """Close a stream, or the batch."""
        if key is None:
            self._batch.close()
        else:
            self._streams[key].close()

    @property
    def is_done(self) -> bool:
        """Whether nothing of the batch is under way."""
        return not self._batch

    def rounds(self, key: str) -> Sequence[RoundStats]:
        """The rounds of a prompt so far."""
        return self._sequences[key].stats.rounds

    def queues(self) -> tuple[list[str], list[str]]:
        """The prompts that run, and those that wait."""
        keys = {id(own): key for key, own in self._sequences.items()}
        scheduler = self._engine.scheduler
        return [keys[id(s)] for s in scheduler.running], [keys[id(s)] for s in scheduler.waiting]

    def pools(self) -> dict[str, Pool]:
        """The blocks of each paged model."""
        return {
            role: _pool(runner.pool)
            for role, runner in self._runners.items()
            if isinstance(runner, PagedModel)
        }


def _runner(role: str, model: Model, letters: Letters, journal: Journal) -> Any:
    """What runs passes of a model."""
    device = Device(role, model, Script(letters, model.drift), journal)
    compiled: Any = Compiled(device)
    known: dict[str, Any] = {"max_length": model.max_length, "vocab_size": len(letters.tokens)}
    if model.kv == "encoder-decoder":
        encoder = Encoder(CompiledEncoder(device))
        return EncoderDecoderModel(compiled, {"keys": 2}, encoder, **known)
    if model.kv == "stateful":
        max_masked = MAX_MASKED if model.max_masked is None else model.max_masked
        axes = {"keys": 2, "places": 2}
        return StatefulModel(
            compiled, axes, max_masked=max_masked, original_context=model.border, **known
        )
    paged = PagedModel(
        compiled,
        is_invariant=model.form != "plain",
        original_context=model.border,
        **known,
    )
    for size in model.static_shapes:
        static: Any = Compiled(device, size)
        paged.add_static(size, static)
    paged.max_pass_tokens = model.max_pass_tokens
    # As many as the tensors have room for, unless the run says so.
    paged.limit(64 * model.max_length if model.memory is None else model.memory)
    return paged


def _pairing(run: Run) -> TokenizerPair | None:
    if run.pairing is None:
        return None
    pieces: tuple[Any, Any] = Pieces(MAIN), Pieces(OTHER)
    return TokenizerPair(*pieces, len(MAIN.tokens), len(OTHER.tokens), run.pairing)


def _costs(
    curve: Curve | None, main: frozenset[int], draft_sizes: frozenset[int] = frozenset()
) -> Costs:
    if curve is None:
        return Costs(NOMINAL)
    draft = None if curve.draft is None else _pass_curve(curve.draft)
    costs = CostCurve(_pass_curve(curve.main), draft)
    costs = costs.with_static("main", main, 0.0).with_static("draft", draft_sizes, 0.0)
    if curve.follows == "clock":
        return LiveCurve(costs)
    return Costs(costs)


def _pass_curve(passes: Passes) -> PassCurve:
    return PassCurve(passes.ticks, passes.change, passes.per_sequence)


def _pool(pool: BlockPool) -> Pool:
    by_serial = {node.serial: node.block for node in pool._nodes.values()}

    def parent(node: NodeId) -> int | str:
        if isinstance(node, int):
            return by_serial.get(node, "gone")
        [salt] = node
        if isinstance(salt, Beyond):
            return f"beyond {salt.namespace or ''}".strip()
        return "" if salt is None else salt if isinstance(salt, str) else "own"

    known = [Block(b, parent(node.parent), node.tokens) for b, node in pool._nodes.items()]
    return Pool(pool.size, dict(pool._users), list(pool._idle), known)
