"""The loop, on scripted models: forced rejections everywhere, exact ends, cache contents."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ov_specdec.drafters.model import DraftCache, ModelDrafter
from ov_specdec.drafters.prompt_lookup import PromptLookup
from ov_specdec.planning.costs import NOMINAL, CostCurve, Costs, PassCurve
from ov_specdec.planning.plan import Plan
from ov_specdec.planning.policies import ConstantLength, HeuristicLength
from ov_specdec.sampling.samplers import Sampler
from tests.support import running
from tests.support.fakes import ScriptedModel, Snapshots, counting, mixing, wrong_at

GREEDY = Sampler()
PROMPT = [3, 1, 4]


@dataclass(frozen=True)
class Filling:
    """A constant length, whose passes the planner fills up. Implements `Policy`."""

    length: int
    is_planned = True

    def answer(self, ask):
        return Plan(self.length, "filling", ask[0])

    def update(self, stats):
        pass


def passes_of(size):
    """Costs of passes that are best filled up to a size."""
    seconds = {1: 2.0, size - 1: 2.0, size: 1.0, 64: 50.0}
    main = PassCurve(seconds, static=frozenset({size}))
    return Costs(CostCurve(main))


def plain(next_token, prompt=PROMPT, max_length=40, eos=()):
    return running.plain(ScriptedModel(next_token), prompt, max_length, eos=eos)


def drafting(draft_next, **settings):
    """A drafter, and its model."""
    model = ScriptedModel(draft_next, **settings)
    return ModelDrafter(DraftCache(model), GREEDY), model


def test_a_pass_is_filled_up_where_context_and_memory_are_full():
    main = ScriptedModel(counting, max_length=12, num_blocks=3)
    drafter, _ = drafting(counting)
    text = running.sequence(main, [5, 6], 12, drafter, Filling(1))
    list(running.rounds(text, costs=passes_of(8)))
    assert text.tokens == list(range(5, 17))
    assert set(main.passes[1:]) == {8}
    assert main.pool.num_used == 0


def test_a_pass_of_a_model_without_spare_rows_is_not_filled_up():
    main = ScriptedModel(counting)
    main.spare = None
    text = running.sequence(main, [5, 6], 12, drafting(counting)[0], Filling(1))
    list(running.rounds(text, costs=passes_of(8)))
    assert set(main.passes[1:]) == {2, 1}


@pytest.mark.parametrize(("spare_row", "sizes"), [(0.001, {2}), (0.1, {1, 2})])
@pytest.mark.parametrize("policy", [Filling(3), ConstantLength(3)])
def test_draft_passes_over_one_sequence_have_one_size_where_a_spare_row_is_cheap(
    spare_row, sizes, policy
):
    passes = PassCurve({1: 0.1, 2: 0.1 + spare_row}, change=0.05)
    drafter, draft = drafting(wrong_at(counting, {8, 9, 17}))
    text = running.sequence(ScriptedModel(counting), [5, 6], 24, drafter, policy)
    list(running.rounds(text, costs=Costs(CostCurve(NOMINAL.main, passes))))
    assert text.tokens == list(range(5, 29))
    # The size of a pass might change a text whose draft lengths are given.
    assert set(draft.passes[1:]) == (sizes if policy.is_planned else {1, 2})


@given(
    seed=st.integers(0, 10_000),
    wrong=st.sets(st.integers(0, 60), max_size=40),
    prompt=st.lists(st.integers(0, 49), min_size=1, max_size=10),
    budget=st.integers(1, 40),
    eos=st.sets(st.integers(0, 49), max_size=2),
    start=st.integers(1, 9),
)
def test_speculative_equals_plain_decoding(seed, wrong, prompt, budget, eos, start):
    main_next = mixing(seed)
    max_length = len(prompt) + budget
    expected = plain(main_next, prompt, max_length, eos)
    for make_drafter in (lambda: drafting(wrong_at(main_next, wrong))[0], lambda: PromptLookup()):
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


def test_what_a_rollback_loses_besides_is_fed_again():
    expected = plain(mixing(1))
    main, draft = Snapshots(mixing(1)), Snapshots(wrong_at(mixing(1), {6, 9, 15, 22, 23}))
    drafter = ModelDrafter(DraftCache(draft), GREEDY)
    text = running.sequence(main, PROMPT, 40, drafter, ConstantLength(3))
    rounds = list(running.rounds(text))
    assert text.tokens == expected.tokens
    assert any(r.stats.num_accepted < r.stats.num_drafted for r in rounds)
    assert len(main.passes) == len(rounds)  # what is missing is fed with the rest
    assert main.rollbacks
    assert all(length % 4 == 0 for length in main.rollbacks + draft.rollbacks)


def test_the_first_pass_of_a_draft_model_reads_a_prompt():
    """It may run an encoder too, whose seconds are no draft token's."""
    drafts = []

    class Noting(Costs):
        def learn(self, role, passes, static):
            drafts.extend(passes if role == "draft" else ())

    drafter, _ = drafting(counting)
    text = running.sequence(ScriptedModel(counting), [5, 6], 16, drafter, ConstantLength(2))
    list(running.rounds(text, costs=Noting(NOMINAL)))
    assert drafts[0].num_prefill == drafts[0].num_tokens > 0
    assert len(drafts) > 4
    assert not any(done.num_prefill for done in drafts[1:])


def test_static_shapes_of_a_draft_model_are_known_before_it_runs():
    known = set()

    class Noting(Costs):
        def learn(self, role, passes, static):
            known.add((role, static))

    drafter, draft = drafting(counting)
    draft.static_shapes = frozenset({2})
    text = running.sequence(ScriptedModel(counting), [5, 6], 4, drafter, ConstantLength(0))
    list(running.rounds(text, costs=Noting(NOMINAL)))
    assert known == {("draft", frozenset({2})), ("main", frozenset())}
    assert not draft.passes
