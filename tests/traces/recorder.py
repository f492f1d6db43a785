"""Plays a run, and writes down what came of each of its steps."""

from collections.abc import Mapping, Sequence
from typing import Any

from ov_specdec import Chunk
from ov_specdec.cache.block_pool import BlockPool, NodeId
from ov_specdec.engine.sequence import Sequence as EngineSequence
from ov_specdec.errors import SpecdecError
from ov_specdec.results.stats import GenerationStats, RoundStats
from ov_specdec.runner.paged import PagedModel
from tests.traces.adapter import Core, determined
from tests.traces.describe import Action, Ask, Cancel, Run, Step
from tests.traces.journal import Journal, Pass, Row, ScriptedError
from tests.traces.letters import MAIN, OTHER, signs

Record = dict[str, Any]
"""What is written of one step, as JSON holds it."""

MOST_STEPS = 400
"""Steps after which a run that has not ended never will."""

COUNTS = ("prompt_tokens", "cached_tokens", "generated_tokens", "drafted", "accepted")


def play(run: Run) -> list[Record]:
    """The records of a run, one for each step, and a last one of what is left in the end.

    A record has only what there is to say, under these names:

    do       what was done, if not a step
    passes   each pass of a model in its order: `main: a 7+xyz/2@0-2` feeds sequence a, of which 7
             tokens are cached, three more, and asks for 2 rows; its blocks are 0, 1 and 2
    back     sequences whose cache a pass found shorter than the one before had left it
    got      by prompt, the pieces that came, as `Chunk` tells them
    rounds   by prompt, plan and outcome of its rounds
    queue    the prompts that run and those that wait, where that has changed
    blocks   by model, blocks that are held (`3*2` by two sequences), kept and free, likewise
    stats    by prompt that has ended, its counts
    known    by model, blocks that are found by content in the end: `3<2 abcd` follows block 2
    """
    journal = Journal()
    with determined(journal):
        player = Player(run, journal)
        for action in run.actions:
            player.do(action)
        return [*player.records, player.left()]


class Player:
    """A run under way."""

    def __init__(self, run: Run, journal: Journal) -> None:
        self.records: list[Record] = []
        self._run, self._journal, self._core = run, journal, Core(run, journal)
        self._sequences: dict[str, EngineSequence] = {}
        self._texts: dict[str, str] = {}
        """By prompt, the whole text so far."""
        self._running: list[str] = []
        self._num_rounds: dict[str, int] = {}
        self._lengths: dict[tuple[str, str], int] = {}
        """Tokens in the KV cache after the last pass, by model and prompt."""
        self._last: Record = {}

    def do(self, action: Action) -> None:
        """Do one thing, and write it down."""
        batch = self._core.batch
        match action:
            case Ask():
                self._begin(action)
            case Step(times):
                most = MOST_STEPS if times is None else times
                while most and (batch or times is not None):
                    most -= 1
                    self._write("step", batch.step())
                assert times is not None or not batch, "the run does not end"
            case Cancel(key):
                batch.cancel(key)
                self._write(f"cancel {key}", [])

    def left(self) -> Record:
        """What KV caches are known to hold in the end."""
        pools = {role: _known(pool) for role, pool in self._pools.items()}
        return {"do": "end", **_given(known=_given(**pools))}

    @property
    def _pools(self) -> dict[str, BlockPool]:
        """The blocks of each model with a paged KV cache."""
        runners = self._core.runners.items()
        return {role: each.pool for role, each in runners if isinstance(each, PagedModel)}

    def _begin(self, action: Ask) -> None:
        key, prompt = action.key, action.prompt.format(**self._texts)
        self._core.batch.add(key, prompt, **action.options)
        self._sequences[key] = self._core.batch._running[key]
        self._texts[key] = prompt
        self._num_rounds[key] = 0

    def _write(self, what: str, news: Sequence[tuple[str, Chunk | BaseException]]) -> None:
        """Write down what has come of something that was done."""
        events = self._journal.take()
        if self._journal.broken:
            raise self._journal.broken[0]
        got: dict[str, list[str]] = {}
        for key, piece in news:
            got.setdefault(key, []).append(_piece(piece))
            if isinstance(piece, Chunk):
                self._texts[key] += MAIN.decode(piece.token_ids)
        keys = {id(own): key for key, own in self._sequences.items()}
        scheduler = self._core.engine.scheduler
        queues = scheduler.running, scheduler.waiting
        running, waiting = ([keys[id(each)] for each in queue] for queue in queues)
        active = [k for k in self._texts if k in {*self._running, *running, *(k for k, _ in news)}]
        passes, back = self._passes(events, active)
        self._running = running
        changed = {
            "queue": f"{' '.join(running)} | {' '.join(waiting)}".strip(),
            "blocks": {role: _blocks(pool) for role, pool in self._pools.items()},
        }
        changed = {name: value for name, value in changed.items() if self._last.get(name) != value}
        self._last |= changed
        self.records.append(
            {
                **_given(
                    do="" if what == "step" else what,
                    passes=passes,
                    back=back,
                    got=got,
                    rounds=self._rounds(),
                ),
                **_given(**changed),
                **_given(stats={k: _stats(c) for k, c in news if isinstance(c, Chunk) and c.stats}),
            }
        )

    def _rounds(self) -> dict[str, list[str]]:
        """The rounds since they were last asked for."""
        found = {}
        for key, number in self._num_rounds.items():
            rounds = self._sequences[key].output.stats.rounds
            self._num_rounds[key] = len(rounds)
            if rounds[number:]:
                found[key] = [_round(stats) for stats in rounds[number:]]
        return found

    def _passes(
        self, events: Sequence[Pass | str], active: Sequence[str]
    ) -> tuple[list[str], list[str]]:
        """Passes in words, and what was rolled back before them."""
        passes, back = [], []
        for event in events:
            if isinstance(event, str):
                passes.append(event)
                continue
            keys: list[str] = []
            for row in event.rows:
                keys.append(self._key(event.model, row, [k for k in active if k not in keys]))
                place = event.model, keys[-1]
                before, now = self._lengths.get(place, 0), len(row.past)
                if now < before:
                    back.append(f"{event.model} {keys[-1]} {before}>{now}")
                self._lengths[place] = now + len(row.fed)
            rows = " ".join(map(_row, keys, event.rows))
            note = f" ({event.note})" if event.note else ""
            passes.append(f"{event.model}{event.variant}: {rows}{note}")
        return passes, back

    def _key(self, model: str, row: Row, keys: Sequence[str]) -> str:
        """Whose sequence it is: the one of the prompts whose text it shares most of.

        A draft model may have other tokens, and see only the end of a text.
        """
        letters = OTHER if self._run.pairing and model == "draft" else MAIN
        text = letters.decode([*row.past, *row.fed])

        def likeness(key: str) -> tuple[int, int]:
            own = self._texts[key]
            starts = 0, max(own.find(text[:6]), 0)
            return max(_num_shared(own[start:], text) for start in starts), -len(own)

        return max(keys, key=likeness, default="?")


def _num_shared(one: str, other: str) -> int:
    """Letters that both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def _given(**fields: Any) -> Record:
    """Those of some fields that say anything."""
    return {name: value for name, value in fields.items() if value}


def _row(key: str, row: Row) -> str:
    if not row.fed:
        return f"{key} {len(row.past)} idle"
    rows = row.rows if isinstance(row.rows, int) else ",".join(map(str, row.rows))
    blocks = f"@{_ranges(row.blocks)}" if row.blocks else ""
    return f"{key} {len(row.past)}+{signs(row.fed)}/{rows}{blocks}"


def _ranges(numbers: Sequence[int]) -> str:
    """Numbers in their order; those that follow each other, up or down, by the first and last."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and _goes_on(runs[-1], number):
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{r[0]}-{r[-1]}" if len(r) > 1 else str(r[0]) for r in runs)


def _goes_on(run: Sequence[int], number: int) -> bool:
    step = number - run[-1]
    return abs(step) == 1 and (len(run) == 1 or step == run[-1] - run[-2])


def _blocks(pool: BlockPool) -> str:
    """Held by one sequence, by several, kept in the order in which they are given up; the rest."""
    users, kept = pool._users, [*pool._idle]
    single = [block for block in sorted(users) if users[block] == 1]
    shared = [f"{block}*{users[block]}" for block in sorted(users) if users[block] > 1]
    held = ",".join(filter(None, [_ranges(single), *shared]))
    free = pool.size - len(users) - len(kept)
    return f"held {held} | kept {_ranges(kept)} | free {free}"


def _known(pool: BlockPool) -> list[str]:
    """What is found by content, block by block: `3<2 abcd` follows block 2."""
    by_serial = {node.serial: node.block for node in pool._nodes.values()}

    def parent(node: NodeId) -> int | str:
        if isinstance(node, int):
            return by_serial.get(node, "gone")
        [salt] = node
        return "" if salt is None else salt if isinstance(salt, str) else "own"

    return [
        f"{block}<{parent(node.parent)} {signs(node.tokens)}"
        for block, node in sorted(pool._nodes.items())
    ]


def _piece(piece: Chunk | BaseException) -> str:
    """A chunk in words, or an error."""
    if isinstance(piece, BaseException):
        if not isinstance(piece, SpecdecError | ScriptedError):
            raise piece
        return f"{type(piece).__name__}: {piece}"
    words = [f"{piece.origin} {signs(piece.token_ids)}"]
    if piece.text != MAIN.decode(piece.token_ids):
        words.append(f"shows {piece.text}")
    if piece.rejected_ids:
        words.append(f"not {signs(piece.rejected_ids)}")
    for name in ("prompt_logprobs", "logprobs"):
        scores = getattr(piece, name)
        if scores:
            words.append(f"{name} {' '.join(map(_logprobs, scores))}")
    if piece.finish_reason:
        words.append(f"ends: {piece.finish_reason}")
    return ", ".join(words)


def _logprobs(scored: Any) -> str:
    """A token's log-probability, and those of others in its place."""
    own = "-" if scored.logprob is None else f"{scored.logprob:.2f}"
    others = "".join(f"|{signs([token])}{value:.2f}" for token, value in scored.top)
    return f"{signs([scored.token_id])}{own}{others}"


def _round(stats: RoundStats) -> str:
    """A round's plan and outcome; times are left out."""
    plan = f"{stats.source} plans {stats.planned} {stats.reason}".strip()
    words = [] if plan == "plans 0" else [plan]
    if stats.num_drafted:
        words.append(f"{stats.num_drafted} drafted, {stats.num_accepted} accepted")
    words.append(f"{stats.num_generated} new")
    words.append(f"fed {stats.pass_tokens} after {stats.cached_tokens}")
    if stats.draft_pass_tokens:
        words.append(f"draft fed {stats.draft_pass_tokens}")
    if stats.num_sequences > 1:
        words.append(f"with {stats.num_sequences - 1}")
    if stats.expected_accepted:
        words.append(f"expects {stats.expected_accepted:.2f}")
    if stats.confidences:
        words.append("sure " + " ".join(f"{value:.2f}" for value in stats.confidences))
    if stats.match_confidence is not None:
        words.append(f"match {stats.match_confidence:.2f}")
    if stats.declined is not None:
        source, confidence, came = stats.declined
        words.append(f"declines {source} {confidence:.2f} {'which came' if came else ''}".strip())
    return ", ".join(words)


def _stats(chunk: Chunk) -> Mapping[str, Any]:
    """The counts of a generation that has ended."""
    stats = chunk.stats
    assert isinstance(stats, GenerationStats)
    counts = {name: getattr(stats, name) for name in COUNTS}
    return counts | {"passes": stats.main_passes, **_given(max_sequences=stats.max_sequences)}
