import pytest

from ov_specdec.speculation.cost_curve import STALE, CostCurve


def curve(*points):
    result = CostCurve()
    for n, cost in points:
        result.add(n, cost)
    return result


def test_nothing_costs_nothing():
    assert not CostCurve()
    assert CostCurve().at(0) == 0.0
    assert curve((4, 2.0)).at(0) == 0.0


def test_one_number_gives_a_line_through_the_origin():
    fitted = curve((4, 2.0))
    assert [fitted.at(n) for n in (2, 4, 8)] == pytest.approx([1.0, 2.0, 4.0])


def test_between_two_numbers_costs_are_interpolated():
    fitted = curve((2, 1.0), (6, 2.0))
    assert [fitted.at(n) for n in (1, 2, 4, 6)] == pytest.approx([0.5, 1.0, 1.5, 2.0])


def test_beyond_the_largest_they_go_on_with_the_slope():
    fitted = curve((2, 1.0), (6, 2.0))
    assert fitted.slope == pytest.approx(0.25)
    assert fitted.at(10) == pytest.approx(3.0)


def test_an_outlier_changes_nothing():
    assert curve((4, 2.0), (4, 2.0), (4, 90.0)).at(4) == pytest.approx(2.0)


def test_more_never_costs_less():
    falling = curve((2, 3.0), (6, 1.0))
    assert falling.slope == 0.0
    assert falling.at(6) == falling.at(9) == pytest.approx(3.0)


def test_a_slope_that_begins_below_nothing_is_not_believed():
    assert curve((2, 0.1), (6, 3.0)).slope == pytest.approx(3.1 / 8)


def test_old_measurements_are_forgotten():
    fitted = curve(*[(4, 9.0)] * 7, *[(4, 1.0)] * 7)
    assert fitted.at(4) == pytest.approx(1.0)


def waiting(fitted, rounds=STALE):
    for _ in range(rounds):
        fitted.end_round()
    return fitted


def test_what_seemed_dear_is_forgotten_after_a_time():
    assert waiting(curve((16, 9.0), (4, 1.0)), STALE - 1).at(16) == pytest.approx(9.0)
    assert waiting(curve((16, 9.0), (4, 1.0))).at(16) == pytest.approx(4.0)


def test_what_is_as_dear_as_others_let_expect_is_kept():
    assert waiting(curve((16, 3.0), (4, 1.0))).at(16) == pytest.approx(3.0)


def test_the_last_number_is_never_forgotten():
    assert waiting(curve((4, 1.0)), 3 * STALE).at(4) == pytest.approx(1.0)
