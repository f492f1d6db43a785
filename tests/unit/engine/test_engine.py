"""The loop, on scripted models: forced rejections everywhere, exact ends, cache contents."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ov_specdec.drafters.base import Cascade
from ov_specdec.drafters.model import ModelDrafter
from ov_specdec.drafters.prompt_lookup import PromptLookup
from ov_specdec.engine.engine import Engine
from ov_specdec.planning.costs import CostCurve, FixedCurve, PassCurve
from ov_specdec.planning.draft_length import MOST, ConstantLength, Estimate, HeuristicLength, Plan
from ov_specdec.results.stats import Round
from ov_specdec.runner.cached_sequence import CachedSequence
from ov_specdec.sampling.samplers import GreedySampler
from tests.support import running
from tests.support.fakes import (
    ScriptedModel,
    ScriptedSlot,
    counting,
    held_by,
    mixing,
    wrong_at,
)

GREEDY = GreedySampler()
PROMPT = [3, 1, 4]


@dataclass(frozen=True)
class Filling:
    """A constant length, whose passes the planner fills up. Implements `Policy`."""

    length: int
    is_planned = True

    def answer(self, ask):
        return Plan(self.length, "filling")

    def update(self, stats):
        pass


class Hopeless:
    """Nothing pays, whoever drafts. Implements `Policy`."""

    is_planned = True

    def answer(self, ask):
        return Estimate(ask[0], (0.0,) * MOST)

    def update(self, stats):
        pass


def passes_of(size):
    """Costs of passes that are best filled up to a size."""
    seconds = {1: 2.0, size - 1: 2.0, size: 1.0, 64: 50.0}
    main = PassCurve(seconds, static=frozenset({size}))
    return FixedCurve(CostCurve(main))


def plain(next_token, prompt=PROMPT, max_length=40, eos=()):
    return running.plain(ScriptedModel(next_token), prompt, max_length, eos=eos)


def drafting(draft_next, **settings):
    """A drafter, and its model."""
    model = ScriptedModel(draft_next, **settings)
    return ModelDrafter(CachedSequence(model), GREEDY), model


def speculative(main_next, draft_next, length, prompt=PROMPT, max_length=40, eos=()):
    """Run the loop, checking before each round what it begins with in both caches."""
    main = ScriptedModel(main_next)
    drafter, draft = drafting(draft_next)
    text = running.sequence(main, prompt, max_length, drafter, ConstantLength(length), eos=eos)
    rounds: list[Round] = []
    for round_ in running.rounds(text):
        rounds.append(round_)
        if text.has_ended:
            break
        known = len(text.tokens) - 1
        cached, drafted = map(held_by, text.caches)
        assert cached[:known] == text.tokens[:-1]
        assert drafted[:known] == text.tokens[: min(known, len(drafted))]
    return text, rounds, main, draft


def test_plain_decoding_feeds_the_prompt_once_and_then_token_by_token():
    model = ScriptedModel(counting)
    text = running.sequence(model, [5, 6], 6)
    rounds = list(running.rounds(text))
    assert text.tokens == [5, 6, 7, 8, 9, 10]
    assert model.passes == [2, 1, 1, 1]
    assert [round_.tokens for round_ in rounds] == [[7], [8], [9], [10]]
    assert text.finish_reason == "length"


@pytest.mark.parametrize("place", range(len(PROMPT) + 1, len(PROMPT) + 9))
def test_a_rejection_at_any_place_is_corrected(place):
    expected = plain(mixing(1))
    num_rejections = 0
    for length in range(1, 6):
        text, rounds, _, _ = speculative(mixing(1), wrong_at(mixing(1), {place}), length)
        assert text.tokens == expected.tokens
        num_rejections += sum(r.stats.num_accepted < len(r.draft_tokens) for r in rounds)
    # At some lengths the place is that of a bonus token, which is not drafted.
    assert 2 <= num_rejections <= 5


def test_a_rejected_draft_token_is_replaced_and_what_follows_it_dropped():
    text, rounds, _, _ = speculative(mixing(1), wrong_at(mixing(1), {6}), 4)
    first = rounds[1]  # drafts places 4 to 7; the one in place 6 is wrong
    assert first.num_from_draft == 2
    assert first.tokens == text.tokens[4:7]
    assert first.tokens[2] != first.draft_tokens[2]
    assert len(first.draft_tokens) == 4


def test_after_all_draft_tokens_were_accepted_the_bonus_token_is_kept():
    _, rounds, main, _ = speculative(mixing(1), mixing(1), 3, max_length=len(PROMPT) + 9)
    assert [len(round_.tokens) for round_ in rounds] == [1, 4, 4]
    assert main.passes == [3, 4, 4]


def test_the_first_token_waits_for_no_draft():
    _, rounds, _, _ = speculative(mixing(1), mixing(1), 5)
    assert rounds[0].draft_tokens == []
    assert len(rounds[0].tokens) == 1


def test_catching_up_after_all_were_accepted_costs_the_draft_no_pass():
    _, _, _, draft = speculative(mixing(1), mixing(1), 3, max_length=len(PROMPT) + 9)
    # The prompt and the first token, two steps; then the last draft token with the bonus token.
    assert draft.passes == [4, 1, 1, 2, 1, 1]


def test_rejected_draft_tokens_are_rolled_back_once_and_before_the_next_pass():
    _, rounds, main, _ = speculative(mixing(1), mixing(2), 4)
    rejecting = [r for r in rounds[:-1] if r.stats.num_accepted < r.stats.num_drafted]
    assert len(main.rollbacks) == len(rejecting) > 5
    assert main.rollbacks == sorted(main.rollbacks)


def test_a_round_without_a_rejection_rolls_nothing_back():
    _, _, main, draft = speculative(mixing(1), mixing(1), 4)
    assert main.rollbacks == draft.rollbacks == []


@pytest.mark.parametrize("eos_place", range(3, 14))
@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_end_of_sequence_ends_the_text_wherever_it_falls(eos_place, length):
    # Counting from 10 puts token 10 + k into place k; so each draft token, correction and bonus
    # token is the end of sequence in one of the cases.
    prompt, eos = [10, 11, 12], {10 + eos_place}
    expected = plain(counting, prompt, eos=eos)
    for draft_next in (counting, wrong_at(counting, {6, 9})):
        text, rounds, _, _ = speculative(counting, draft_next, length, prompt, eos=eos)
        assert text.tokens == expected.tokens
        assert text.tokens[-1] == 10 + eos_place
        assert text.finish_reason == expected.finish_reason == "stop"
        assert sum(len(round_.tokens) for round_ in rounds) == len(text.tokens) - len(prompt)
        assert rounds[-1].num_from_draft <= len(rounds[-1].tokens)


@pytest.mark.parametrize("budget", range(1, 12))
@pytest.mark.parametrize("length", [1, 3, 8])
def test_the_token_budget_is_kept_exactly(budget, length):
    text, rounds, main, _ = speculative(mixing(3), mixing(3), length, max_length=3 + budget)
    assert len(text.tokens) == 3 + budget
    assert text.finish_reason == "length"
    assert sum(round_.stats.num_generated for round_ in rounds) == budget
    assert sum(main.passes) <= 2 + budget, "draft tokens beyond the budget were verified"


def test_an_end_of_sequence_as_last_token_of_the_budget_is_a_stop():
    text = plain(counting, [10], max_length=4, eos={13})
    assert text.finish_reason == "stop"


def test_rounds_record_what_happened():
    _, rounds, _, _ = speculative(mixing(1), wrong_at(mixing(1), {6}), 4)
    stats = rounds[1].stats
    assert (stats.num_drafted, stats.num_accepted, stats.num_generated) == (4, 2, 3)
    parts = stats.draft_seconds + stats.verify_seconds + stats.rollback_seconds
    assert 0 < parts <= stats.seconds


def test_a_draft_with_a_short_context_goes_on_from_the_latest_half_of_it():
    drafter, draft = drafting(counting, max_length=8)
    main, policy = ScriptedModel(counting), ConstantLength(4)
    text = running.sequence(main, [1, 2, 3], 30, drafter, policy)
    held = []
    for round_ in running.rounds(text):
        # What is left to the last round has room for no draft token.
        assert round_.draft_tokens or round_.stats.reason == "prefill" or len(text.tokens) == 30
        held.append(held_by(drafter.caches[0]))
    assert text.tokens == list(range(1, 31))
    assert max(map(len, held)) <= 8
    held = [tokens for tokens in held if tokens]
    assert all(tokens == list(range(tokens[0], tokens[0] + len(tokens))) for tokens in held)
    # All but a few tokens are read once, and half of the context again when it is full.
    assert sum(draft.passes) < 2 * 30


def test_of_a_prompt_longer_than_its_context_a_draft_reads_half_of_that():
    drafter, draft = drafting(counting, max_length=8)
    main, policy = ScriptedModel(counting), ConstantLength(2)
    text = running.sequence(main, range(1, 21), 24, drafter, policy)
    rounds = list(running.rounds(text))
    assert rounds[1].draft_tokens == [22, 23]
    assert draft.passes == [4, 1]


def test_a_pass_is_filled_up_as_the_policy_wants_and_leaves_no_trace():
    expected = plain(mixing(1))
    main = ScriptedModel(mixing(1))
    drafter, _ = drafting(wrong_at(mixing(1), {6, 9}))
    text = running.sequence(main, PROMPT, 40, drafter, Filling(2))
    for round_ in running.rounds(text, costs=passes_of(5)):
        known = len(text.tokens) - 1
        if text.finish_reason is None:
            assert held_by(text.cache)[:known] == text.tokens[:-1]
        assert round_.stats.pass_tokens == main.passes[-1]
    assert text.tokens == expected.tokens
    assert set(main.passes) == {len(PROMPT), 5}


def test_each_step_is_a_round_where_neither_a_match_nor_the_draft_model_pays():
    main = ScriptedModel(lambda tokens: len(tokens) % 2)
    drafter, draft = drafting(counting)
    text = running.sequence(main, [0, 1], 12, Cascade(PromptLookup(), drafter), Hopeless())
    engine = Engine(main, draft)
    engine.add_request(text)
    for _ in range(10):
        engine.step()
    assert text.has_ended
    assert {round_.stats.reason for round_ in text.unread} == {"prefill", "loses", "full"}
    assert any(round_.stats.declined for round_ in text.unread)


def test_a_pass_is_not_filled_up_beyond_the_context():
    main = ScriptedModel(counting, max_length=12)
    drafter, _ = drafting(counting)
    text = running.sequence(main, [5, 6], 12, drafter, Filling(1))
    list(running.rounds(text, costs=passes_of(8)))
    assert text.tokens == list(range(5, 17))
    assert max(main.passes) == 8


def test_a_pass_is_not_filled_up_with_what_takes_time_to_forget():
    main = ScriptedModel(counting)
    main.has_cheap_rollback = False
    text = running.sequence(main, [5, 6], 12, drafting(counting)[0], Filling(1))
    list(running.rounds(text, costs=passes_of(8)))
    assert set(main.passes[1:]) == {2, 1}


def test_a_draft_ends_after_a_draft_token_that_its_model_gives_little_probability():
    drafter, _ = drafting(counting)  # one-hot logits: e / (e + 49) = 5 % each

    def proposed(min_confidence):
        plan = Plan(6, "constant", min_confidence=min_confidence)
        return running.propose(drafter, [1, 2], lambda ask: plan)

    assert proposed(0.06).draft.tokens == [3]
    assert proposed(0.06).confidences == pytest.approx((0.0525,), abs=1e-3)
    assert proposed(0.05).draft.tokens == [3, 4, 5, 6, 7, 8]


@given(
    seed=st.integers(0, 10_000),
    wrong=st.sets(st.integers(0, 60), max_size=40),
    prompt=st.lists(st.integers(0, 49), min_size=1, max_size=10),
    budget=st.integers(1, 40),
    eos=st.sets(st.integers(0, 49), max_size=2),
    start=st.integers(1, 9),
)
@settings(deadline=None)
def test_speculative_equals_plain_decoding(seed, wrong, prompt, budget, eos, start):
    main_next = mixing(seed)
    max_length = len(prompt) + budget
    expected = plain(main_next, prompt, max_length, eos)
    for make_drafter in (
        lambda: drafting(wrong_at(main_next, wrong))[0],
        lambda: PromptLookup(),
    ):
        for policy in (
            ConstantLength(start),
            HeuristicLength(start),
            ConstantLength(0),
            Filling(start),
        ):
            main, drafter = ScriptedModel(main_next), make_drafter()
            text = running.sequence(main, prompt, max_length, drafter, policy, eos=eos)
            list(running.rounds(text, costs=passes_of(start + 3)))
            assert text.tokens == expected.tokens
            assert text.finish_reason == expected.finish_reason


class Snapshots(ScriptedModel):
    """A model that goes back to every fourth token only, as one with recurrent layers may."""

    class slot(ScriptedSlot):  # noqa: N801
        def rollback(self, length):
            super().rollback(length // 4 * 4)


def test_a_model_that_can_only_go_back_to_what_it_has_kept_is_fed_the_rest_again():
    expected = plain(mixing(1))
    main, draft = Snapshots(mixing(1)), Snapshots(wrong_at(mixing(1), {6, 9, 15, 22, 23}))
    drafter = ModelDrafter(CachedSequence(draft), GREEDY)
    text = running.sequence(main, PROMPT, 40, drafter, ConstantLength(3))
    rounds = list(running.rounds(text))
    assert text.tokens == expected.tokens
    assert any(r.stats.num_accepted < r.stats.num_drafted for r in rounds)
    assert len(main.passes) == len(rounds)  # what is missing is fed with the rest
    assert main.rollbacks
    assert all(length % 4 == 0 for length in main.rollbacks + draft.rollbacks)
