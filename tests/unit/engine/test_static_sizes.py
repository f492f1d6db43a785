"""Which sizes of passes static shapes are compiled for."""

from types import SimpleNamespace

import pytest

from ov_specdec.engine.static_shapes import StaticShapes
from ov_specdec.results.stats import PassStats


@pytest.mark.parametrize(
    ("is_invariant", "used", "known", "compiled"),
    [
        (False, [1], (), 1),
        (True, [1], (), 2),  # a single token is padded to two
        (True, [5, 5, 1], (), 6),
        (True, [5, 5, 1], (6,), 2),
        (True, [*[1] * 19, 5], (1, 2), None),  # too rare
        (True, [5, 1], (2, 6), None),  # as many as there may be
        (True, [17], (2, 6), 24),
    ],
)
def test_the_most_frequent_size_is_compiled_for(is_invariant, used, known, compiled):
    asked = []
    runner = SimpleNamespace(
        static_shapes=frozenset(known), is_invariant=is_invariant, max_length=1000
    )
    shapes = StaticShapes(
        runner,
        lambda size: asked.append(size) or object,
        1,
        usual={},
        sizes=None,
        can_swap=lambda: False,
    )
    shapes.learn([PassStats(size, 0, 0, 0.0) for size in used], 0, 3.0, is_idle=False)
    if shapes._thread is not None:
        shapes._thread.join()
    assert asked == ([] if compiled is None else [compiled])
