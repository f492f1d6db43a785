"""What passes cost: curves, what each pass teaches, and what is kept of that."""

import warnings
from copy import deepcopy
from dataclasses import replace
from functools import partial
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ov_specdec.planning.costs import NOMINAL, CostCurve, PassCurve
from ov_specdec.planning.kept_costs import MAIN_SIZES, KeptCosts, read_curve
from ov_specdec.planning.learned_costs import LearnedCosts
from ov_specdec.results.stats import PassStats
from ov_specdec.runner.cached_sequence import CachedSequence, alone
from tests.support.fakes import ScriptedModel, counting, held_by

CURVE = CostCurve(PassCurve({1: 1.0, 4: 2.5, 8: 2.0}, 0.5), PassCurve({1: 0.1, 2: 0.15}, 0.05))


def test_beyond_what_was_measured_passes_do_not_get_cheaper():
    falling = PassCurve({1: 2.0, 8: 1.0})
    assert falling.at(16) == 1.0
    # On average a token more costs (2 - 1) / 7.
    assert CURVE.main.at(16) == pytest.approx(2.0 + 8 / 7)
    assert CURVE.main.at(5000) == CURVE.main.by_size(5001)[4999]


@pytest.mark.parametrize(
    ("passes", "rows", "costs"),
    [
        (PassCurve({1: 0.1, 2: 0.15}, 0.05), 1, (0.1, 0.0, 0.15)),
        # A spare row costs less than changes.
        (PassCurve({1: 0.1, 2: 0.11}, 0.05), 2, (0.11, 0.0, 0.0)),
        (PassCurve({1: 0.1, 2: 0.12}, 0.05, static=frozenset({1})), 1, (0.1, 0.0, 0.02)),
        (PassCurve({1: 0.1, 2: 0.15}, 0.05, static=frozenset({2})), 2, (0.15, 0.0, 0.0)),
        (PassCurve({1: 0.1, 2: 0.15}, 0.05, static=frozenset({8})), 1, (0.1, 0.0, 0.15)),
        (PassCurve({1: 0.1, 2: 0.11}, 0.05, resumed=0.3), 2, (0.11, 0.3, 0.0)),
        (None, 1, (0.0, 0.0, 0.0)),
    ],
)
def test_drafting_costs_per_draft_token_and_after_a_full_draft(passes, rows, costs):
    curve = CostCurve(CURVE.main, passes)
    assert curve.draft_rows == rows
    assert curve.drafting == pytest.approx(costs)


class Machine:
    """What passes take on a made-up machine, some of which other programs disturb."""

    def __init__(self, curve, disturbed=0.0):
        self.curve, self.pace = curve, 1.0
        self._disturbed, self._random = disturbed, Random(0)
        self._last, self._last_role = {}, ""

    def run_cold(self, costs, *sizes, **more):
        """The first pass of a model, which reads its weights from disk."""
        self.pace *= 7.0
        self.run(costs, *sizes, **more)
        self.pace /= 7.0

    def run(self, costs, *sizes, role="main", num_cached=0, num_prefill=0):
        """Passes over so many tokens, of which the costs learn; of a draft model in one step."""
        passes, done = getattr(self.curve, role), []
        for size in sizes:
            num_read = size * num_cached
            changes = size != self._last.get(role) and size not in passes.static
            extra = passes.change * changes
            extra += passes.resumed * (role == "draft" and role != self._last_role)
            self._last_role = role
            seconds = self.pace * (passes.at(size, num_read) + extra)
            seconds *= self._random.gauss(1.0, 0.03)
            seconds *= 10.0 if self._random.random() < self._disturbed else 1.0
            if size not in passes.static:
                self._last[role] = size
            done.append(PassStats(size, num_read, num_prefill, seconds))
        for step in [done] if role == "draft" else [[each] for each in done]:
            costs.learn(role, step, passes.static)


def relative(curve, role="main", sizes=(1, 2, 3, 4, 6, 8)):
    """Seconds by size against those of one token."""
    passes = getattr(curve, role)
    return [passes.at(size) / curve.main.at(1) for size in sizes]


@pytest.mark.parametrize("more", [0.0, 0.03, 0.3])
@pytest.mark.parametrize(("share", "disturbed"), [(0.02, 0.0), (0.5, 0.05)])
def test_use_teaches_what_passes_take_in_any_order_of_sizes(more, share, disturbed):
    main = PassCurve({1: 0.02, 1001: 0.02 + 20 * more}, change=0.004)
    machine = Machine(CostCurve(main, PassCurve({1: 0.02 * share})), disturbed)
    costs, generator = LearnedCosts(NOMINAL), Random(1)
    machine.run_cold(costs, 90, num_prefill=90)
    machine.run(costs, 90, num_prefill=90)
    machine.run_cold(costs, 90, role="draft")
    for _ in range(40):
        machine.run(costs, 1, 1, 1, role="draft")
        machine.run(costs, *[generator.choice((1, 2, 3, 4, 6, 8))] * 3)
    assert relative(costs.curve) == pytest.approx(relative(machine.curve), rel=0.1)
    assert relative(costs.curve, "draft", (1,)) == pytest.approx([share], rel=0.1)
    # Neighbours tell of other sizes.
    others = {"sizes": (5, 7, 12)}
    assert relative(costs.curve, **others) == pytest.approx(
        relative(machine.curve, **others), rel=0.2
    )


def taught(curve=CURVE, disturbed=0.0):
    machine, costs = Machine(curve, disturbed), LearnedCosts(NOMINAL)
    for _ in range(40):
        machine.run(costs, 1, 1, 1, role="draft")
        machine.run(costs, 1, 1, 4, 4)
    return machine, costs


def test_a_prompt_tells_the_scale_of_all_passes():
    machine, costs = Machine(CostCurve(PassCurve({1: 0.01, 101: 1.0}))), LearnedCosts(NOMINAL)
    machine.run_cold(costs, 90, num_prefill=90)
    assert costs.curve == NOMINAL
    machine.run(costs, 101, num_prefill=101)
    assert 0.001 < costs.curve.main.at(1) < 1.0
    assert costs.curve.draft.at(1) < 0.2 * NOMINAL.draft.at(1)  # of the other model too
    before = costs.curve
    machine.run(costs, 50, num_cached=101, num_prefill=50)  # a later part of it reads more
    machine.run(costs, 50, num_prefill=49)  # nor is a pass that also decodes
    assert costs.curve == before
    encoded = LearnedCosts(NOMINAL, learns_prompts=False)
    machine.run_cold(encoded, 1)
    machine.run(encoded, 101, num_prefill=101)
    assert encoded.curve == NOMINAL


def test_another_pace_of_the_machine_moves_nothing_else():
    machine, costs = taught()
    before = relative(costs.curve), relative(costs.curve, "draft", (1, 2)), costs.curve.main.at(1)
    machine.pace = 2.0
    for _ in range(40):
        machine.run(costs, 1, 1, 1, role="draft")
        machine.run(costs, 1, 1, 4, 4)
    after = (
        relative(costs.curve),
        relative(costs.curve, "draft", (1, 2)),
        costs.curve.main.at(1) / 2,
    )
    for known, found in zip(before, after, strict=True):
        assert found == pytest.approx(known, rel=0.1)


def test_sizes_out_of_use_follow_their_neighbours():
    machine, costs = taught()
    before = relative(costs.curve, sizes=(4, 6, 8, 64))
    machine.curve = CostCurve(PassCurve({1: 1.0, 4: 5.0}, 0.5), CURVE.draft)
    machine.run(costs, *(1, 1, 4, 4) * 60)
    grown = np.divide(relative(costs.curve, sizes=(4, 6, 8, 64)), before)
    assert grown[0] == pytest.approx(2.0, rel=0.1)
    assert grown[0] > grown[1] > grown[2] > 1.05


def test_passes_of_the_draft_beside_the_main_models_teach_only_what_they_show():
    """A draft model that reads what it skipped takes a larger pass, and not longer steps."""
    machine, costs = taught()
    machine.run(costs, *(100, 1, 1, 1) * 20, role="draft")
    assert relative(costs.curve, "draft", (1,)) == pytest.approx([0.1], rel=0.15)


@pytest.mark.parametrize("change", [0.05, 1.0])
def test_what_a_change_of_size_takes_is_learnt(change):
    _, costs = taught(CostCurve(PassCurve({1: 1.0, 4: 2.5}, change), CURVE.draft))
    assert costs.curve.main.change / costs.curve.main.at(1) == pytest.approx(change, abs=0.1)


@pytest.mark.parametrize("resumed", [0.0, 0.15])
def test_what_a_draft_model_takes_after_the_main_model_is_learnt(resumed):
    """Else all tokens would seem to cost what drafts of one do, whose passes are all the first."""
    machine = Machine(CostCurve(CURVE.main, replace(CURVE.draft, resumed=resumed)))
    costs = LearnedCosts(NOMINAL)
    for sizes in ([1], [1, 1, 1], [1], [2, 1]) * 20:
        machine.run(costs, *sizes, role="draft")
        machine.run(costs, 1)
    found = costs.curve.draft
    assert found.resumed / found.at(1) == pytest.approx(resumed / 0.1, abs=0.25)
    assert relative(costs.curve, "draft", (1,)) == pytest.approx([0.1], rel=0.15)


@pytest.mark.parametrize(("resumed", "change"), [(0.0, 1.0), (1.5, 0.1)])
def test_idle_passes_tell_a_change_of_size_from_a_return(process, resumed, change):
    costs, models = process()
    sizes, last = {}, []

    def slow(forward, place, spans):
        size = sum(len(span.tokens) for span in spans)
        Clocked.now += change * (sizes.get(place) != size) + resumed * (place == 1 and last != [1])
        sizes[place], last[:] = size, [place]
        return forward(spans)

    for place, each in enumerate(models):
        each.forward = partial(slow, each.forward, place)
    costs.prepare()
    found = costs.curve.draft
    assert found.change / found.at(1) == pytest.approx(change, abs=0.15)
    assert found.resumed / found.at(1) == pytest.approx(resumed, abs=0.15)


def test_the_first_pass_of_a_static_shape_teaches_less():
    """OpenVINO makes its kernels then, as for each new size."""
    machine, first = taught()
    machine.curve = CostCurve(replace(CURVE.main, static=frozenset({4})), CURVE.draft)
    first.learn("main", [], frozenset({4}))
    later = deepcopy(first)
    later._seen.add(("main", 4, True))
    before = first._state.copy()
    for costs in (first, later):
        machine.run_cold(costs, 4)
    moved = [abs(costs._state - before).max() for costs in (first, later)]
    assert 0.0 < moved[0] < 0.8 * moved[1]


def test_a_model_whose_first_pass_is_of_a_static_shape_teaches_from_the_second_on():
    passes = replace(CURVE.main, static=frozenset({1}))
    machine, costs = Machine(CostCurve(passes)), LearnedCosts(NOMINAL)
    machine.run(costs, 1)
    assert not costs.is_learned
    machine.run(costs, 1)
    assert costs.is_learned


def test_static_shapes_of_a_model_that_runs_no_pass_are_known():
    """Else drafts that would pay with them alone are never tried."""
    _, costs = taught()
    costs.learn("draft", [], frozenset({1, 2}))
    assert costs.curve.draft.static == {1, 2}


def test_what_reading_takes_is_learnt():
    machine = Machine(CostCurve(PassCurve({1: 1.0, 101: 11.0}, per_read=5e-4)))
    costs = LearnedCosts(CostCurve(NOMINAL.main))
    for num_cached in range(0, 4000, 20):
        machine.run(costs, 1 + num_cached // 20 % 4, num_cached=num_cached)
    assert costs.curve.main.per_read / costs.curve.main.at(1) == pytest.approx(5e-4, rel=0.15)


def test_a_static_shape_is_learnt_soon_and_changes_to_it_are_free():
    machine, costs = taught()
    static_passes = PassCurve({1: 1.0, 4: 2.0}, CURVE.main.change, static=frozenset({4}))
    machine.curve = CostCurve(static_passes, CURVE.draft)
    machine.run(costs, *(4, 4, 1, 1) * 20)
    assert costs.curve.main.static == {4}
    assert relative(costs.curve, sizes=(4,)) == pytest.approx([2.0], rel=0.1)
    machine.curve = CURVE  # it is dropped
    machine.run(costs, 4)
    assert not costs.curve.main.static


SECONDS = st.just(0.0) | st.floats(1e-9, 1e9)
PASSES = st.builds(
    lambda size, cached, is_prompt, seconds: PassStats(
        size, 0 if is_prompt else size * cached, size * is_prompt, seconds
    ),
    st.integers(1, 3000),
    st.integers(0, 200_000),
    st.booleans(),
    SECONDS,
)
STEPS = st.lists(st.tuples(st.sampled_from(["main", "draft"]), PASSES), min_size=1, max_size=40)


@given(STEPS, st.integers(1, 20))
@settings(max_examples=40)
def test_whatever_passes_take_costs_stay_positive_and_can_be_kept(tmp_path_factory, steps, times):
    path = tmp_path_factory.getbasetemp() / "any-passes.json"
    costs = KeptCosts(model(), model(), None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for role, done in steps * times:
            costs.learn(role, [done])
    kept = KeptCosts(model(), model(), path)
    kept.curve, kept.is_learned = costs.curve, True
    kept.keep()
    assert read_curve(path) == kept.curve


def test_the_covariance_stays_positive_definite_over_many_passes():
    machine, costs = taught(disturbed=0.02)
    for number in range(2_500):
        sizes = (1, 1, 4, 8 if number % 100 else 300)
        machine.run(costs, *sizes, num_cached=number)
    covariance = costs._covariance
    assert np.array_equal(covariance, covariance.T)
    assert np.linalg.eigvalsh(covariance)[0] > 0
    assert relative(costs.curve) == pytest.approx(relative(CURVE), rel=0.3)


def model(max_length=2000, **more):
    return ScriptedModel(counting, max_length=max_length, **more)


class Clocked(ScriptedModel):
    """A model whose passes take 0.9 seconds and 0.1 for each token, and beside other work more."""

    now, is_disturbed = 0.0, False

    def forward(self, spans):
        size = sum(len(span.tokens) for span in spans)
        Clocked.now += (0.9 + 0.1 * size) * (2.0 + size / 8 if self.is_disturbed else 1.0)
        return super().forward(spans)


@pytest.fixture
def process(tmp_path, monkeypatch):
    """Makes the costs of a new process on a scripted clock."""
    monkeypatch.setattr("ov_specdec.planning.kept_costs.perf_counter", lambda: Clocked.now)
    monkeypatch.setattr("ov_specdec.planning.kept_costs.MEASURING_SECONDS", 1e6)

    def start(is_disturbed=False):
        monkeypatch.setattr(Clocked, "is_disturbed", is_disturbed)
        models = [Clocked(counting, max_length=2000) for _ in range(2)]
        return KeptCosts(*models, tmp_path / "curve.json"), models

    return start


TRUE = CostCurve(PassCurve({1: 1.0, 2: 1.1}), PassCurve({1: 1.0, 2: 1.1}))


def test_idle_time_runs_passes_of_all_sizes_once_for_all_processes(process, tmp_path):
    costs, models = process()
    running = CachedSequence(models[0])
    alone(running.advance([5, 6, 7]))
    used = models[0].pool.num_used
    assert costs.is_pending
    assert costs.curve == NOMINAL
    costs.passes().close()  # something else was to be done
    assert costs.is_pending
    list(costs.passes())
    assert {*models[0].passes} >= {*MAIN_SIZES}
    assert relative(costs.curve) == pytest.approx(relative(TRUE), rel=0.11)
    # It leaves caches as they were.
    assert held_by(running) == [5, 6, 7]
    assert [each.pool.num_used for each in models] == [used, 0]
    assert not costs.is_pending
    later, models = process()
    assert not later.is_pending
    assert later.curve == costs.curve == read_curve(tmp_path / "curve.json")
    later.prepare()
    assert models[0].passes == []


def test_seconds_are_taken_in_any_case_and_progress_is_told(process):
    costs, _ = process()
    shares = []
    costs.prepare(shares.append, seconds=300.0)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    begin = Clocked.now
    costs.prepare(seconds=50.0)
    assert 50.0 < Clocked.now - begin < 100.0


def test_costs_kept_beside_other_work_are_corrected_in_use(process, tmp_path):
    first, _ = process(is_disturbed=True)
    first.prepare()
    assert relative(first.curve, sizes=(8,))[0] > 2.0
    later, _ = process()
    machine = Machine(TRUE)
    machine.run(later, *(1, 2, 3, 4, 6, 8) * 17)
    assert relative(later.curve) == pytest.approx(relative(TRUE), rel=0.11)
    machine.run(later, *[1] * 256)
    assert relative(read_curve(tmp_path / "curve.json"), sizes=(8,)) == pytest.approx(
        [1.7], rel=0.15
    )


@pytest.mark.parametrize("max_length", [9, 17, 100])
@pytest.mark.parametrize("num_blocks", [2, 3, 8, 40])
def test_what_context_and_memory_have_no_room_for_is_left_to_use(max_length, num_blocks):
    main = model(max_length, num_blocks=num_blocks)
    left = CachedSequence(main)
    alone(left.advance([1] * 6))
    used = main.pool.num_used
    costs = KeptCosts(main, model(max_length), None)
    costs.prepare()
    costs.prepare(seconds=0.01)
    assert not costs.is_pending
    assert main.pool.num_used == used
    assert np.isfinite(costs.curve.main.by_size(20)).all()


def test_a_folder_that_cannot_be_written_to_is_a_warning(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    costs = KeptCosts(model(), None, blocked / "curve.json")
    with pytest.warns(RuntimeWarning, match="cannot be kept in .* XDG_CACHE_HOME"):
        costs.prepare()
    assert costs.curve.main.at(1) > 0
    assert costs.curve.draft is None
