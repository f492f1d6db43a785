"""Drafts of one pass: the pass itself, where drafts end, and what of them is cached."""

import numpy as np
import pytest

from ov_specdec.drafters.model import DraftCache, ModelDrafter
from ov_specdec.planning.policies import ConstantLength
from ov_specdec.sampling.samplers import Sampler
from tests.support import running
from tests.support.fakes import MASK, ScriptedModel, counting, in_parallel

TEXT = [3, 1, 4, 1, 5]


def drafter_of(draft, mask_token=MASK, min_confidence=0.0, **sampler):
    draft.mask_token = mask_token
    return ModelDrafter(DraftCache(draft), Sampler(**sampler), min_confidence)


def propose(drafter, length=4, tokens=TEXT):
    return running.propose(drafter, tokens, length)


def test_a_draft_ends_after_an_unlikely_token_and_after_an_end():
    def flat_at_8(tokens):
        following = in_parallel(counting)(tokens)
        return np.float32(np.arange(50) == following) * (0.1 if following == 8 else 20.0)

    def drafted(floor, ends=()):
        draft = ScriptedModel(flat_at_8)
        return propose(drafter_of(draft, min_confidence=floor, ends=frozenset(ends)))

    assert drafted(0.0).draft.tokens == [6, 7, 8, 9]
    assert drafted(0.5).draft.tokens == [6, 7, 8]
    assert [round(each, 1) for each in drafted(0.5).confidences] == [1.0, 1.0, 0.0]
    assert drafted(0.0, {7}).draft.tokens == [6, 7]


@pytest.mark.parametrize("mask_token", [7, 49, MASK])
def test_the_mask_token_is_never_proposed(mask_token):
    rows = np.float32(np.arange(50) == mask_token) + np.float32(np.arange(50) == 20) / 2
    draft = ScriptedModel(lambda _: rows)
    assert propose(drafter_of(draft, mask_token)).draft.tokens == [20] * 4


@pytest.mark.parametrize(
    "hiding", [{}, {"min_confidence": 1e-9, "processors": (lambda _, row: np.nan_to_num(row),)}]
)
def test_a_row_that_is_no_distribution_ends_the_drafts(hiding):
    def failing(tokens):
        return np.full(50, np.nan, np.float32) if tokens[-2:] == [MASK] * 2 else counting(tokens)

    drafter = drafter_of(ScriptedModel(failing), **hiding)
    drafted = propose(drafter)
    assert drafted.has_failed
    assert len(drafted.draft.tokens) == 2
    assert drafter.offers(TEXT) == []


@pytest.mark.parametrize("context", [6, 9, 16])
def test_a_short_context_holds_the_latest_tokens(context):
    main, draft = ScriptedModel(counting), ScriptedModel(in_parallel(counting), max_length=context)
    text = running.sequence(main, TEXT, 60, drafter_of(draft), ConstantLength(4))
    rounds = list(running.rounds(text))
    assert text.tokens == [*TEXT[:-1], *(token % 50 for token in range(5, 61))][:60]
    assert all(round_.stats.num_drafted for round_ in rounds[1:-1])
