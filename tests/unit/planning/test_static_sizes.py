"""Which sizes of passes static shapes are worth most for."""

from ov_specdec.engine.static_shapes import most_saving
from ov_specdec.planning.costs import PassCurve

CURVE = PassCurve({1: 4.0, 16: 7.0}, change=2.0, saved=1.0)


def curve(*static):
    return PassCurve(CURVE.seconds, CURVE.change, saved=CURVE.saved, static=frozenset(static))


def test_a_larger_one_serves_smaller_passes_where_that_saves_more():
    # A pass over 3 in the shape of 4 takes 0.2 longer, and no change of size.
    assert most_saving({3: 5, 4: 5}, curve())[0] == 4
    assert most_saving({2: 1, 3: 1, 4: 1, 6: 1}, curve())[0] == 6


def test_what_is_there_is_not_compiled_again():
    assert most_saving({2: 9, 16: 1}, curve(2))[0] == 16
    assert most_saving({2: 9, 16: 1}, curve(2, 16))[1] < 0.04  # sizes between them save nothing
    assert most_saving({7: 1}, curve(8))[0] != 8


def test_nothing_is_saved_where_nothing_is_asked_for_or_allowed():
    assert most_saving({}, curve()) == (0, 0.0)
    assert most_saving({0: 3}, curve()) == (0, 0.0)
    assert most_saving({9: 3}, curve(), allowed=(2, 4)) == (0, 0.0)
