"""Caches of draft models that read hidden states, where the main model's cache was freed."""

import pytest

from ov_specdec.drafters import hidden_states
from ov_specdec.drafters.hidden_states import HeadCache, HeadDrafter
from ov_specdec.planning.plan import Plan
from ov_specdec.runner.cached_sequence import CachedSequence, alone
from ov_specdec.sampling.samplers import Sampler
from tests.support.fakes import ScriptedModel, counting

DRAFT = Plan(3, "constant")


def reading(main, window):
    """A drafter with a head of this window, its cache, and the main model's sequence."""
    head = ScriptedModel(counting, max_length=window, hidden_state=lambda tokens: [len(tokens)] * 2)
    head.feature_size = 2
    cache = HeadCache(head)
    drafter = HeadDrafter(cache, Sampler())
    return drafter, cache, CachedSequence(main, readers=[drafter])


def main_model(**more):
    return ScriptedModel(counting, hidden_state=lambda tokens: [len(tokens)] * 2, **more)


@pytest.mark.parametrize("window", [16, 1000])
def test_an_idle_head_drafts_after_a_preemption_of_a_text_beyond_its_window(window, monkeypatch):
    monkeypatch.setattr(hidden_states, "SLACK", 4)
    drafter, head, main = reading(main_model(max_length=1000), window)
    text = list(range(46))
    alone(main.advance(text[:-1]))
    for cache in (main, head):
        cache.free()
    for cache in (main, head):
        cache.match_prefix()
    drafted = alone(drafter.propose(text, DRAFT)).draft.tokens
    assert drafted == [46, 47, 48][: max(len(drafted), 1)]


def test_a_head_goes_on_where_the_main_models_factors_change():
    drafter, _, main = reading(main_model(max_length=1000, border=30), 1000)
    text = list(range(28))
    for token in range(28, 34):
        alone(main.advance(text[:-1]))
        assert alone(drafter.propose(text, DRAFT)).draft.tokens == [token, token + 1, token + 2]
        text.append(token)
