"""A drafter from outside the package, and processors that keep state of a text."""

import pytest

from ov_specdec import OptionError, SpeculativePipeline
from ov_specdec.drafters.base import Proposal
from ov_specdec.drafters.factory import DrafterKind, Request, draft_model
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.planning.draft_length import Offer
from ov_specdec.sampling.samplers import GreedySampler
from ov_specdec.sampling.verification import Draft
from tests.support import running
from tests.support.fakes import ScriptedModel, mixing, wrong_at
from tests.support.scripted import generator

RUN = {"max_new_tokens": 24, "ignore_eos": True, "num_assistant_tokens": 3}


class Echo:
    """Drafts what the text ends with. Implements `Drafter`."""

    sources = ("echo",)
    caches = ()

    def __init__(self, request: Request):
        self.prompt = list(request.tokens)

    def offers(self, tokens):
        assert tokens[: len(self.prompt)] == self.prompt
        return [Offer("echo", 0.5, tokens[-1])]

    def propose(self, tokens, plan):
        yield from ()
        return Proposal(Draft(list(tokens[-plan.length :])))


def test_a_drafter_from_outside_is_a_value(tiny_pair):
    main, draft = tiny_pair
    with SpeculativePipeline(main, drafter="none") as plain:
        expected = plain.generate("def area(", **{**RUN, "num_assistant_tokens": 0}).token_ids
    with SpeculativePipeline(main, drafter=DrafterKind("echo", (Echo,))) as pipeline:
        result = pipeline.generate("def area(", **RUN)
        assert result.token_ids == expected
        assert {round_.source for round_ in result.stats.rounds if round_.num_drafted} == {"echo"}
        assert pipeline.drafter == "echo"
        assert pipeline.generate("def area(", reference_texts="x", **RUN).token_ids == expected
    behind = DrafterKind("echo, then a model", (Echo, draft_model))
    with SpeculativePipeline(main, draft, drafter=behind) as pipeline:
        assert pipeline.generate("def area(", **RUN).token_ids == expected
    with pytest.raises(OptionError, match="has no effect with drafter='echo'"):
        SpeculativePipeline(main, draft, drafter=DrafterKind("echo", (Echo,)))


class Grammar:
    """Lets no token follow itself, by a state of its own. Implements `Follower`."""

    def __init__(self):
        self.followed = []
        self.num_beyond = 0

    def __call__(self, tokens, row):
        beyond = list(tokens[3 + len(self.followed) :])
        assert list(tokens[3:]) == self.followed + beyond
        self.num_beyond += bool(beyond)
        state = (beyond or self.followed or [None])[-1]
        row = row.copy()
        if state is not None:
            row[state] = -1e9
        return row

    def follow(self, tokens):
        self.followed += tokens


def repeating(tokens):
    """A model that says each token twice."""
    return tokens[-1] if len(tokens) > 1 and tokens[-1] != tokens[-2] else mixing(1)(tokens)


def test_a_processor_with_state_follows_the_tokens_that_stand():
    main, draft = ScriptedModel(repeating), ScriptedModel(wrong_at(repeating, {9, 14}))
    text = generator(main, draft)
    grammars = [Grammar(), Grammar(), Grammar()]
    jobs = [
        ("ABC", GenerationOptions(max_new_tokens=30, num_assistant_tokens=3, logits_processor=[g]))
        for g in grammars[:2]
    ]
    results = text.batch(jobs)
    plain = GenerationOptions(
        max_new_tokens=30, num_assistant_tokens=0, logits_processor=[grammars[2]]
    )
    [expected] = text.batch([("ABC", plain)])
    for grammar, result in zip(grammars, [*results, expected], strict=True):
        assert grammar.followed == result.token_ids == expected.token_ids
        assert all(a != b for a, b in zip(result.token_ids, result.token_ids[1:], strict=False))
    assert grammars[0].num_beyond > 0
    assert grammars[2].num_beyond == 0
    assert 0 < results[0].stats.accepted < results[0].stats.drafted


def test_tokens_behind_the_end_of_a_text_are_not_followed():
    grammar = Grammar()
    text = running.sequence(
        ScriptedModel(repeating), [1, 2, 3], 30, sampler=GreedySampler((grammar,)), eos={7}
    )
    text.extend([4, 5])
    text.extend([6, 7, 8])
    assert grammar.followed == [4, 5, 6, 7]
