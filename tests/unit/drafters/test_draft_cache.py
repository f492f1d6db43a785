"""What a draft model has cached of a text, and has yet to read of it."""

from ov_specdec.drafters.model import DraftCache
from ov_specdec.runner.cached_sequence import alone
from tests.support.fakes import ScriptedModel, counting

TEXT = [*range(5, 45)]


def test_it_tells_how_much_of_a_text_it_has_to_read():
    model = ScriptedModel(counting)
    cache = DraftCache(model)
    assert cache.num_unread(TEXT) == len(TEXT)
    alone(cache.advance(TEXT, num_rows=1))
    assert cache.num_unread(TEXT) == 1
    assert cache.num_unread([*TEXT, 7, 8, 9]) == 3
    cache.free()
    later = [*TEXT, *TEXT]
    assert DraftCache(model).num_unread(later) == len(TEXT)
    assert DraftCache(model, "other").num_unread(later) == len(later)


def test_of_a_text_beyond_its_context_it_reads_no_more_than_that():
    assert DraftCache(ScriptedModel(counting, max_length=16)).num_unread(TEXT) <= 16
