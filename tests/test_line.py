import pytest

from ov_specdec.line import CostLine


def line(*points):
    result = CostLine()
    for n, cost in points:
        result.add(n, cost)
    return result


def test_nothing_costs_nothing():
    assert not CostLine()
    assert line((4, 2.0)).at(0) == 0.0


def test_one_number_gives_a_line_through_the_origin():
    assert line((4, 2.0)).at(8) == pytest.approx(4.0)


def test_two_numbers_give_start_and_slope():
    fitted = line((2, 1.0), (6, 2.0))
    assert (fitted.start, fitted.slope) == pytest.approx((0.5, 0.25))
    assert fitted.at(10) == pytest.approx(3.0)


def test_an_outlier_changes_nothing():
    assert line((4, 2.0), (4, 2.0), (4, 90.0)).at(4) == pytest.approx(2.0)


def test_cost_never_falls_with_the_number():
    falling = line((2, 3.0), (6, 1.0))
    assert falling.slope == 0.0
    assert falling.at(6) == pytest.approx(2.0)


def test_the_start_is_never_negative():
    steep = line((2, 0.1), (6, 3.0))
    assert steep.start == 0.0
    assert steep.slope > 0.0


def test_old_measurements_are_forgotten():
    fitted = line(*[(4, 9.0)] * 7, *[(4, 1.0)] * 7)
    assert fitted.at(4) == pytest.approx(1.0)
