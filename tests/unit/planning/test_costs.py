"""What passes cost: curves, their measurement, their files, and their correction in use."""

from dataclasses import replace
from random import Random

import pytest

from ov_specdec.planning.costs import NOMINAL, CostCurve, LiveCurve, PassCurve
from ov_specdec.planning.kept_costs import KeptCosts, read_curve, write_curve
from ov_specdec.planning.measurement import SIZES, SWEEPS, WIDE, Measurement
from ov_specdec.results.stats import PassStats, StepStats
from ov_specdec.runner.cached_sequence import CachedSequence, alone
from tests.support.fakes import ScriptedModel, counting, held_by
from tests.support.rounds import a_round, step_of

CURVE = CostCurve(
    PassCurve({1: 1.0, 4: 2.5, 8: 2.0}, 0.5),
    PassCurve({1: 0.1, 2: 0.15}, 0.05),
    sweeps=SWEEPS,
)


def test_beyond_what_was_measured_passes_do_not_get_cheaper():
    falling = PassCurve({1: 2.0, 8: 1.0})
    assert falling.at(16) == 1.0
    # On average a token more costs (2 - 1) / 7.
    assert CURVE.main.at(16) == pytest.approx(2.0 + 8 / 7)
    assert CURVE.main.at(5000) == CURVE.main.by_size(5001)[4999]


def test_drafting_costs_per_draft_token_and_after_a_full_draft():
    assert CURVE.drafting == pytest.approx((0.1, 0.15))
    assert CostCurve(CURVE.main).drafting == (0.0, 0.0)


def measure(main, draft, seconds, sweeps=SWEEPS, progress=None):
    measurement = Measurement(main, draft, sweeps)
    measurement.run(seconds, progress)
    return measurement.curve(NOMINAL)


def model(max_length=2000):
    return ScriptedModel(counting, max_length=max_length)


def test_all_sizes_are_measured_where_there_is_time():
    shares = []
    curve = measure(model(), model(), 60.0, sweeps=2, progress=shares.append)
    assert set(curve.main.seconds) == {*SIZES, *WIDE}
    assert set(curve.draft.seconds) == {1, 2, 16}
    assert shares == sorted(shares)


def test_a_first_generation_waits_for_few_passes(tmp_path):
    main, path = model(), tmp_path / "curve.json"
    costs = KeptCosts(main, model(), path, 60.0)
    costs.improve()
    num_passes = len(main.passes)
    assert costs.curve.main.seconds.keys() == {1, 4, 8}
    assert costs.curve.sweeps == read_curve(path).sweeps == 1
    costs.improve()
    assert len(main.passes) == num_passes < 18


def test_what_memory_has_no_room_for_is_not_measured():
    main = ScriptedModel(counting, max_length=1000, num_blocks=8)
    assert set(measure(main, None, 60.0, sweeps=2).main.seconds) == {*SIZES}
    assert main.pool.num_used == 0


def test_without_room_for_the_shortest_passes_the_curve_stays_nominal(tmp_path):
    main = ScriptedModel(counting, max_length=1000, num_blocks=3)
    alone(CachedSequence(main).advance([1] * 12))
    costs = KeptCosts(main, model(), tmp_path / "curve.json", 0.1)
    costs.prepare()
    assert costs.curve == NOMINAL
    assert main.pool.num_used == 3
    assert list(tmp_path.iterdir()) == []


def test_measuring_leaves_the_caches_as_they_were():
    main, draft = model(), model()
    running, left = CachedSequence(main), CachedSequence(main)
    alone(running.advance([5, 6, 7]))
    alone(left.advance([0] * 9))  # with such tokens, passes are timed
    left.free()
    used = main.pool.num_used
    measure(main, draft, 0.1, sweeps=1)
    assert held_by(running) == [5, 6, 7]
    assert (main.pool.num_used, draft.pool.num_used) == (used, 0)
    assert alone(CachedSequence(main).advance([0] * 40)).num_cached == 9
    assert alone(CachedSequence(draft).advance([0] * 40)).num_cached == 0


def test_a_curve_of_few_passes_is_measured_anew_by_a_later_process(tmp_path):
    path = tmp_path / "curve.json"
    slow = PassCurve(dict.fromkeys(SIZES, 9.0), 0.5)
    write_curve(path, CostCurve(slow, CURVE.draft, sweeps=1))
    later = KeptCosts(model(), model(), path, 5.0)
    assert later.curve.main == slow  # until there is time to measure
    later.prepare()
    assert later.curve.main.at(1) < 1.0
    assert later.curve.sweeps == SWEEPS
    assert read_curve(path) == later.curve
    main = model()
    KeptCosts(main, model(), path, 5.0).prepare()
    assert main.passes == []


class Clocked(ScriptedModel):
    """A model whose passes take 0.9 seconds and 0.1 for each token, and beside other work more."""

    now, is_disturbed = 0.0, False

    def forward(self, spans):
        size = sum(len(span.tokens) for span in spans)
        Clocked.now += (0.9 + 0.1 * size) * (2.0 + size / 8 if self.is_disturbed else 1.0)
        return super().forward(spans)


@pytest.mark.parametrize("is_prepared", [False, True])
def test_a_curve_measured_beside_other_work_is_not_kept_for_good(
    tmp_path, monkeypatch, is_prepared
):
    monkeypatch.setattr("ov_specdec.planning.measurement.perf_counter", lambda: Clocked.now)

    def process(is_disturbed):
        monkeypatch.setattr(Clocked, "is_disturbed", is_disturbed)
        models = [Clocked(counting, max_length=2000) for _ in range(2)]
        return KeptCosts(*models, tmp_path / "curve.json", 1e6)

    def ratios(curve):
        return [curve.main.at(n) / (0.9 + 0.1 * n) for n in range(1, 17)]

    first = process(is_disturbed=True)
    (first.prepare if is_prepared else first.improve)()
    assert min(ratios(first.curve)) > 2.0
    later = process(is_disturbed=False)
    later.improve()
    for stats in rounds(1, 1.0, 30):
        later.learn(step_of(stats))
    later.improve()  # before the next text
    assert [*ratios(later.curve), *ratios(read_curve(tmp_path / "curve.json"))] == pytest.approx(
        [1.0] * 32, abs=0.1
    )
    assert later.curve.draft.at(1) == pytest.approx(1.0, abs=0.1)


def test_a_folder_that_cannot_be_written_to_is_a_warning(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    costs = KeptCosts(model(), None, blocked / "curve.json", 0.0)
    with pytest.warns(RuntimeWarning, match="cannot be kept in .* XDG_CACHE_HOME"):
        costs.prepare()
    assert costs.curve.main.at(1) > 0


def test_until_passes_are_timed_the_curve_is_nominal_and_not_kept(tmp_path):
    main, draft, path = model(), model(), tmp_path / "curve.json"
    costs = KeptCosts(main, draft, path, 0.1)
    assert costs.curve == NOMINAL
    assert KeptCosts(main, None, path, 0.1).curve.draft is None
    for stats in (rounds(1, 1.0) + rounds(4, 5.0)) * 40:
        costs.learn(step_of(stats))
    assert costs.curve.main.at(4) > 1.5 * NOMINAL.main.at(4)
    assert not path.exists()
    assert main.passes == draft.passes == []
    costs.prepare()
    assert costs.curve.sweeps > 0
    assert read_curve(path) == costs.curve


def rounds(size, seconds, number=3, **more):
    """Rounds of one size after another, the first of which changes to it."""
    return [a_round(size - 1, 0, seconds, 0.0, **more) for _ in range(number)]


def taught(rounds):
    live = LiveCurve(CURVE)
    for stats in rounds:
        live.learn(step_of(stats))
    return live


def test_a_size_that_takes_longer_beside_others_is_corrected():
    live = taught((rounds(1, 1.0) + rounds(4, 5.0)) * 80)
    assert live.curve.main.at(4) / live.curve.main.at(1) == pytest.approx(5.0, rel=0.1)


def test_what_a_change_of_size_takes_is_learnt():
    assert taught((rounds(1, 1.0) + rounds(4, 2.5)) * 2).curve.main.change == 0.5
    slower = (
        [a_round(0, 0, 1.8, 0.0), *rounds(1, 1.0), a_round(3, 0, 3.3, 0.0), *rounds(4, 2.5)]
    ) * 20
    assert taught(slower).curve.main.change == pytest.approx(0.8, rel=0.15)


def test_outliers_and_changes_of_pace_leave_costs_positive_and_near():
    generator, pace, disturbed = Random(0), 1.0, []
    for _ in range(400):
        size, seconds = generator.choice(((1, 1.0), (4, 2.5)))
        for stats in rounds(size, seconds, 5):
            pace = 2.0 / pace if generator.random() < 0.05 else pace
            slower = pace * (10.0 if generator.random() < 0.05 else 1.0)
            disturbed.append(replace(stats, verify_seconds=slower * stats.verify_seconds))
    row = taught(disturbed).curve.main.seconds
    assert min(row.values()) > 0
    assert row[4] / row[1] == pytest.approx(2.5, rel=0.15)  # what both have gained is the pace


def test_the_draft_reading_the_prompt_is_no_drafting():
    reading = [a_round(3, 0, 2.5, 10.3, draft_pass_tokens=103)] * 40
    assert taught(reading).curve == CURVE
    drafting = [a_round(3, 0, 2.5, 30.0, draft_pass_tokens=3)] * 40
    assert taught(drafting).curve.draft.at(1) > CURVE.draft.at(1)


def test_what_drafting_takes_is_learnt_of_each_draft_token():
    """The first pass after the main model's takes longer, which is no reason for longer drafts."""
    costs = LiveCurve(CostCurve(PassCurve({1: 1.0, 8: 1.5}), PassCurve({1: 0.05})))
    drafts = [PassStats(1, 1, 0, seconds) for seconds in (0.2, *[0.1] * 6)]
    for size, seconds in ((1, 1.0), (1, 1.0), (8, 1.5), (8, 1.5)) * 100:
        done = PassStats(size, 1, 0, seconds)
        costs.learn(StepStats(done, tuple(drafts) if size == 8 else ()))
    assert costs.curve.drafting[0] == pytest.approx(0.8 / 7, rel=0.05)
