"""Whatever is measured, kept in files and asked for: each plan is valid, and no request ends."""

import json
import warnings
from copy import deepcopy
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ov_specdec.files import keep_section
from ov_specdec.models.invariance import InvarianceVerdict, read_verdict
from ov_specdec.planning.costs import GRID, NOMINAL, CostCurve, Costs, PassCurve
from ov_specdec.planning.kept_costs import read_curve
from ov_specdec.planning.learned_costs import LearnedCosts
from ov_specdec.planning.plan import MAX_PLANNED_LENGTH, Estimate, Offer
from ov_specdec.planning.planner import Load, Planner
from ov_specdec.results.stats import PassStats
from tests.support.fakes import ScriptedModel, counting

SECONDS = st.floats(1e-6, 1e3)
SHAPES = st.frozensets(st.integers(1, 40), max_size=4)


def curves():
    """Curves of one model, with any sizes."""
    extra = st.just(0.0) | SECONDS
    row = st.dictionaries(st.sampled_from(GRID), SECONDS, min_size=1)
    return st.builds(PassCurve, row, extra, extra, SHAPES, resumed=extra)


COSTS = st.builds(CostCurve, curves(), st.none() | curves(), st.booleans())
RATES = st.just(0.0) | st.just(1.0) | st.floats(0.0, 1.0)
OF_DRAFT = st.builds(
    Estimate,
    st.builds(
        Offer, st.just("model"), takes_one_pass=st.booleans(), num_unread=st.integers(1, 3000)
    ),
    RATES,
    num_cached=st.integers(0, 100_000),
    is_hopeful=st.booleans(),
    num_expected=st.integers(1, 3000),
)
OF_MATCH = st.builds(Estimate, st.just(Offer("suffix", 0.5, 1)), RATES)


@st.composite
def steps(draw):
    """The estimates of a step and its load, and new static shapes or a new curve before it."""
    estimates = draw(st.lists(OF_DRAFT | OF_MATCH, max_size=5))
    num_answered = len(estimates) + draw(st.integers(0 if estimates else 1, 20))
    num_more = draw(st.integers(0, 300))
    load = Load(
        num_answered + draw(st.integers(0, 3)),
        num_answered,
        num_answered + num_more,
        draw(st.integers(0, 100_000)),
        draw(st.just(0) | st.integers(0, 512)),
        draw(st.just(0) | st.integers(0, num_more)),
    )
    return estimates, load, draw(st.none() | SHAPES | COSTS)


def is_valid(plan):
    return type(plan.length) is int and 0 <= plan.length <= MAX_PLANNED_LENGTH


MATCH = Estimate(Offer("suffix", 0.9, 1), 0.8)
DRAFTED = Estimate(Offer("model"), 0.8)
ALONE = Load()


@given(COSTS, st.lists(steps(), min_size=1, max_size=6))
@example(NOMINAL, [([MATCH], ALONE, None), ([], ALONE, frozenset({5})), ([MATCH], ALONE, None)])
@example(NOMINAL, [([DRAFTED], ALONE, None), ([MATCH], ALONE, frozenset({5}))] * 2)
@settings(max_examples=200)
def test_every_plan_is_valid_whatever_static_shapes_and_costs_change(curve, taken):
    costs = Costs(curve)
    planner = Planner(costs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for estimates, load, change in taken:
            if isinstance(change, CostCurve):
                costs.curve = change
            elif change is not None:
                costs.curve = replace(costs.curve, main=replace(costs.curve.main, static=change))
            plans, size, wanted = planner.plan(estimates, load)
            assert len(plans) == len(estimates)
            assert all(map(is_valid, plans))
            assert (wanted > 0) == (not load.num_prefill)
            fed = load.num_tokens + sum(plan.length for plan in plans)
            size = max(fed, size)
            # A probe comes last, and need not fit.
            assert load.num_prefill or fed <= size + sum(plan.reason == "probe" for plan in plans)


@given(st.integers(1, 600), SHAPES, st.none() | st.just(64))
def test_a_pass_without_a_planned_size_is_padded_to_a_near_static_shape(num_tokens, static, most):
    model = ScriptedModel(counting)
    model.static_shapes, model.max_pass_tokens = static, most
    size = num_tokens + sum(len(span.tokens) for span in model.padding(num_tokens))
    is_near = num_tokens < size <= 2 * num_tokens and (size in static or size == most)
    assert size == num_tokens or (is_near and size <= (most or size))


KEPT = CostCurve(PassCurve({1: 1.0, 8: 2.5}, 0.5), PassCurve({1: 0.1}), is_measured=True)


KINDS = {
    "costs": (lambda path: keep_section(path, "costs", KEPT), read_curve),
    "verdict": (
        lambda path: keep_section(path, "invariance", InvarianceVerdict("", 64)),
        read_verdict,
    ),
}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


def places(content, path=()):
    """The paths of all values of a JSON object."""
    for key, value in content.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from places(value, (*path, key))


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_that_lacks_something_is_as_none(kind, tmp_path):
    path = tmp_path / "file.json"
    write, read = KINDS[kind]
    write(path)
    record = json.loads(path.read_text(encoding="utf-8"))
    for *within, name in places(record):
        damaged = inner = deepcopy(record)
        for key in within:
            inner = inner[key]
        del inner[name]
        path.write_text(json.dumps(damaged), encoding="utf-8")
        is_measurement = within[-1:] == ["seconds"]  # of which there may be fewer
        assert is_measurement or read(path) is None, (*within, name)


def is_plausible(found):
    """Whether a value that was read can be used."""
    if isinstance(found, CostCurve):
        costs = LearnedCosts(found)
        planner = Planner(costs)
        for seconds in (0.0, 1e-3, 1e9):  # clocks are not to be trusted either
            plans = planner.plan([MATCH, DRAFTED], Load(2, 2, 2)).plans
            assert all(map(is_valid, plans))
            costs.learn("main", [PassStats(6, 1000, 0, seconds)])
            if found.draft is not None:
                costs.learn("draft", [PassStats(1, 500, 0, seconds)])
        return bool(np.isfinite(costs.curve.main.by_size(2000, 100_000)).all())
    kinds = [type(value) for value in asdict(found).values()] if found else [str, int]
    return kinds in ([str, int], [str, type(None)])


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_a_record_says_is_plausible_or_is_replaced(kind, data, tmp_path):
    path = tmp_path / "file.json"
    write, read = KINDS[kind]
    path.unlink(missing_ok=True)  # of the last example
    write(path)
    kept, record = read(path), json.loads(path.read_text(encoding="utf-8"))
    *within, name = data.draw(st.sampled_from([*places(record)]))
    inner = record
    for key in within:
        inner = inner[key]
    inner[name] = data.draw(VALUES | st.sampled_from([64.0, 1e308, float("inf"), 10**400, True]))
    path.write_text(json.dumps(record), encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert is_plausible(read(path))
    write(path)
    assert read(path) == kept
