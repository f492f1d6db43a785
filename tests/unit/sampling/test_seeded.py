"""With a seed, the text is the main model's own: whatever is drafted, and whatever runs beside."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ov_specdec.drafters.base import Proposal
from ov_specdec.drafters.model import DraftCache, ModelDrafter
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.planning.plan import Offer
from ov_specdec.planning.policies import ConstantLength
from ov_specdec.sampling.noise import Noise
from ov_specdec.sampling.samplers import Sampler, make_samplers
from ov_specdec.sampling.verification import Draft
from tests.support.drafting import PROMPT, beside_another, make_drafter, table_pair
from tests.support.enumeration import best_by_definition
from tests.support.fakes import ScriptedModel, table_model
from tests.support.running import plain, propose, rounds, sequence

VOCAB = 8
SIZE = 24
KINDS = ("sampled", "greedy", "prompt lookup", "suffix", "intersection", "retokenize", "wrong")
OPTION_SETS = {
    "temperature": {"temperature": 0.8},
    "top_k": {"temperature": 1.3, "top_k": 3},
    "top_p": {"top_p": 0.7},
    "min_p": {"min_p": 0.2},
    "typical_p": {"typical_p": 0.6},
    "with a history": {"temperature": 1.2, "repetition_penalty": 1.5, "no_repeat_ngram_size": 3},
}


def by_history(seed):
    """Logits that differ with each history, by its last tokens and its length."""

    def model(tokens):
        rng = np.random.default_rng([seed, len(tokens), *tokens[-3:]])
        return rng.normal(0, 1.5, VOCAB).astype(np.float32)

    return model


def alike(main, noise):
    """A draft model: the main model's logits and some noise."""
    other = by_history(99)
    return lambda tokens: main(tokens) + np.float32(noise) * other(tokens)


def scripted(script):
    return ScriptedModel(script, vocab_size=VOCAB)


def samplers_for(**options):
    return make_samplers(
        GenerationOptions(**options), prompt_length=len(PROMPT), eos_token_ids=frozenset()
    )


def by_definition(main, seed, choice=0, **options):
    """The text that a seed means: each token has the greatest log-probability plus Gumbel noise."""
    law = samplers_for(**{"do_sample": True, **options})[0]  # without a seed
    tokens = list(PROMPT)
    while len(tokens) < len(PROMPT) + SIZE:
        distribution = law.distribution(tokens, main(tokens))
        tokens.append(best_by_definition(distribution, seed, choice, len(tokens))[0])
    return tokens


class Wrong:
    """Drafts tokens at random. Implements `Drafter`."""

    sources = ("wrong",)
    caches = ()

    def __init__(self, seed):
        self._random = np.random.default_rng(seed)

    def offers(self, tokens):
        return [Offer("wrong")]

    def propose(self, tokens, plan):
        yield from ()
        length = int(self._random.integers(5))
        return Proposal(Draft(self._random.integers(0, VOCAB, length).tolist()))


def speculative(main, draft, kind, length, rounds_of=rounds, **options):
    """The text, and how many draft tokens were accepted and proposed."""
    samplers = samplers_for(**options)
    drafter = Wrong(length) if kind == "wrong" else make_drafter(kind, scripted(draft), samplers[1])
    text = sequence(
        scripted(main),
        PROMPT,
        len(PROMPT) + SIZE,
        drafter,
        ConstantLength(length),
        sampler=samplers[0],
    )
    stats = [round_.stats for round_ in rounds_of(text)]
    return text.tokens, sum(s.num_accepted for s in stats), sum(s.num_drafted for s in stats)


@pytest.mark.parametrize("kind", KINDS)
@given(
    rounds_of=st.sampled_from([rounds, beside_another]),
    name=st.sampled_from(list(OPTION_SETS)),
    seed=st.integers(0, 2**64 - 1),
    choice=st.integers(0, 3),
    model=st.integers(0, 1000),
    noise=st.sampled_from([0.0, 0.3, 2.0]),
    length=st.integers(1, 6),
)
@settings(max_examples=12)
def test_whatever_is_drafted_the_text_is_the_one_of_the_seed(
    rounds_of, kind, name, seed, choice, model, noise, length
):
    main = by_history(model)
    options = {**OPTION_SETS[name], "seed": seed, "choice": choice}
    expected = by_definition(main, seed, choice, **OPTION_SETS[name])
    if kind == "wrong":
        rounds_of = rounds
    draft = alike(main, noise)
    assert speculative(main, draft, kind, length, rounds_of, **options)[0] == expected
    sampler = samplers_for(**options)[0]
    assert plain(scripted(main), PROMPT, len(PROMPT) + SIZE, sampler=sampler).tokens == expected


@pytest.mark.parametrize("name", OPTION_SETS)
def test_a_draft_model_drafts_with_the_same_noise(name):
    main = by_history(5)
    options = {**OPTION_SETS[name], "seed": 11, "choice": 2}
    _, accepted, drafted = speculative(main, main, "sampled", 4, **options)
    assert accepted == drafted > 0


def test_with_a_greedy_draft_the_noise_is_the_main_models_alone():
    samplers = samplers_for(temperature=1.0, seed=3, assistant_do_sample=False)
    assert isinstance(samplers[0].rng, Noise)
    assert samplers[1] == Sampler()
    flat = table_model(np.full((VOCAB, VOCAB), 1.0) + np.eye(VOCAB, k=1))
    options = {"temperature": 1.0, "seed": 3}
    drawn = speculative(flat, flat, "sampled", 3, **options)
    greedy = speculative(flat, flat, "greedy", 3, **options)
    assert greedy[0] == drawn[0]
    assert greedy[1] < drawn[1]


def test_drafts_of_another_vocabulary_couple_by_the_main_models_ids():
    # Both models know the tokens a, b and c, under other ids, and give them the same weights.
    main_table, draft_table = np.zeros((4, 4)), np.zeros((4, 4))
    for weight, (main_id, draft_id) in enumerate(table_pair(4).draft_of.items(), start=2):
        main_table[:, main_id] = draft_table[:, draft_id] = weight
    main, draft = (
        ScriptedModel(table_model(table), vocab_size=4) for table in (main_table, draft_table)
    )
    for seed in range(20):
        samplers = samplers_for(temperature=1.0, seed=seed)
        drafter = make_drafter("intersection", draft, samplers[1])
        length, sampler = len(PROMPT) + SIZE, samplers[0]
        text = sequence(main, PROMPT, length, drafter, ConstantLength(3), sampler=sampler)
        stats = [round_.stats for round_ in rounds(text)]
        assert sum(s.num_drafted for s in stats) > 0
        assert all(s.num_accepted == s.num_drafted for s in stats)


def test_a_seeded_draft_ends_where_no_token_may_follow():
    def dead_after_two(tokens, row):
        return row if len(tokens) < len(PROMPT) + 2 else np.full_like(row, -np.inf)

    sampler = Sampler((dead_after_two,), rng=Noise(4))
    drafter = ModelDrafter(DraftCache(scripted(by_history(1))), sampler)
    proposal = propose(drafter, PROMPT)
    assert len(proposal.draft.tokens) == 2
    assert proposal.draft.probs is None
