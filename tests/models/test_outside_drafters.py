"""Drafters from outside the package, one of which reads hidden states as draft heads do."""

from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ov_specdec import OptionError, SpeculativePipeline
from ov_specdec.drafters.base import Proposal
from ov_specdec.drafters.factory import DrafterInput, DrafterKind, draft_model
from ov_specdec.drafters.prompt_lookup import PromptLookup
from ov_specdec.engine.engine import Engine
from ov_specdec.engine.scheduler import StepLimits
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.planning.plan import Offer
from ov_specdec.planning.policies import ConstantLength
from ov_specdec.runner.cached_sequence import CachedSequence
from ov_specdec.sampling.verification import Draft
from tests.support import running
from tests.support.fakes import ScriptedModel, Snapshots, mixed, mixing
from tests.support.scripted import generator

SEED = 1
TEXT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]


def hidden_state(tokens):
    """Place, token, and what the next token comes of."""
    return len(tokens) - 1, tokens[-1], mixed(tokens, SEED)


def main_model(kind=ScriptedModel, **settings):
    return kind(mixing(SEED), hidden_state=hidden_state, **settings)


class Read(int):
    """A token as a head's blocks hold it: with the hidden state that was read with it."""


class Head(ScriptedModel):
    """A draft head. A row has the hidden states [length] that its blocks hold of a sequence."""

    def __init__(self, **settings):
        super().__init__(mixing(SEED), **settings)
        self.given = {}
        """Hidden states by slot and place, for the passes to come."""

    def _rows(self, span, past):
        for place, token in enumerate(span.tokens, past):
            read = Read(token)
            # A head whose cache was given up has to be given what it had read anew.
            read.state = self.given.pop((span.slot, place))
            self.memory[self._address(span.slot, place)] = read
        return np.array([[read.state for read in self.held(span.slot)]])


class HeadDrafter:
    """Drafts what the newest hidden state says. Implements `Drafter` and `HiddenStatesReader`.

    wrong: places for which it drafts another token.
    """

    sources = ("head",)

    def __init__(self, head, wrong=()):
        self.cache = CachedSequence(head)
        self.caches = (self.cache,)
        self.observed = []
        """Places of the tokens of each call."""
        self._wrong = wrong

    def match_prefix(self, tokens):
        return self.cache.hold(tokens)

    def observe(self, start, tokens, hidden_states):
        assert hidden_states.shape == (len(tokens), 3)
        places = list(range(start, start + len(tokens)))
        assert hidden_states[:, 0].tolist() == places
        assert hidden_states[:, 1].tolist() == list(tokens)
        self.observed.append(places)
        for place, state in zip(places, hidden_states[:, 2], strict=True):
            self.cache.runner.given[self.cache._slot, place] = int(state)

    def offers(self, tokens):
        return [Offer("head")]

    def propose(self, tokens, plan):
        draft, known = [], len(tokens) - 1
        if plan.length:
            done = yield from self.cache.advance(tokens[:known], num_rows=1)
            states = done.logits[0].tolist()
            assert states == [mixed(tokens[:end], SEED) for end in range(1, known + 1)]
            while len(draft) < plan.length:
                state = mixed([*tokens, *draft][known:], states[-1], known)
                place = len(tokens) + len(draft)
                draft.append((state + (place in self._wrong)) % 50)
        return Proposal(Draft(draft))


def request(main, head, prompt=TEXT, num_new=12, length=3, wrong=(), **more):
    drafter = HeadDrafter(head, wrong)
    policy = ConstantLength(length)
    return running.sequence(main, prompt, len(prompt) + num_new, drafter, policy, **more)


def expected(prompt, num_new=12):
    return running.plain(ScriptedModel(mixing(SEED)), prompt, len(prompt) + num_new).tokens


def test_what_stands_is_observed_once_and_rejected_draft_tokens_are_not():
    text = request(main_model(), Head(), num_new=30, wrong={14, 16, 21})
    rounds = list(running.rounds(text))
    assert text.tokens == expected(TEXT, 30)
    rejected = [r.stats.num_drafted > r.stats.num_accepted for r in rounds]
    assert sum(rejected) == 3  # where it is wrong; all else that it drafts is right
    assert [*chain(*text.request.drafters[0].observed)] == list(range(len(text.tokens) - 1))


JOBS = st.tuples(
    st.lists(st.integers(0, 2), min_size=1, max_size=30), st.integers(30, 80), st.integers(0, 4)
)


@given(
    jobs=st.lists(JOBS, min_size=2, max_size=6),
    blocks=st.tuples(*[st.integers(30, 50)] * 2),
    chunk=st.integers(1, 20),
    wrong=st.sets(st.integers(0, 110)),
    border=st.none() | st.integers(1, 90),
    kind=st.sampled_from([ScriptedModel, Snapshots]),
    interval=st.sampled_from([None, 3]),
)
@settings(max_examples=30)
def test_every_draft_is_made_of_the_right_states(
    jobs, blocks, chunk, wrong, border, kind, interval
):
    main = main_model(kind, num_blocks=blocks[0], border=border)
    head = Head(num_blocks=blocks[1])
    texts = [request(main, head, *job, wrong) for job in jobs]
    engine = Engine(main, head, StepLimits(4, chunk))
    for text in texts:
        engine.scheduler.waiting.add(text)
    for step in range(3000):
        if all(text.has_ended for text in texts):
            break
        engine.step()
        if interval and step % interval == 0 and step < 100 and engine.scheduler.running:
            engine.scheduler._requeue(engine.scheduler.running[-1])
    for text, (prompt, num_new, _) in zip(texts, jobs, strict=True):
        assert text.error is None
        assert text.tokens == expected(prompt, num_new)
    assert main.pool.num_used == head.pool.num_used == 0


def test_a_main_model_without_hidden_states_is_refused(tiny_pair):
    kind = DrafterKind("head", (lambda _: HeadDrafter(Head()),))
    behind = DrafterKind("lookup, then head", (lambda _: PromptLookup(), *kind.makes))
    for each in (kind, behind):
        text = generator(ScriptedModel(mixing(SEED)), drafter=each)
        with pytest.raises(OptionError, match="drafter HeadDrafter reads hidden states, and this"):
            text.stream("ABC", GenerationOptions(max_new_tokens=5))
        plain = GenerationOptions(max_new_tokens=5, num_assistant_tokens=0)
        assert len(text.batch([("ABC", plain)])[0].token_ids) == 5
    with (
        SpeculativePipeline(tiny_pair[0], drafter=kind) as pipeline,
        pytest.raises(OptionError, match="this main model has only logits"),
    ):
        pipeline.stream("def area(", max_new_tokens=5)


RUN = {"max_new_tokens": 24, "ignore_eos": True, "num_assistant_tokens": 3}


class Echo:
    """Drafts what the text ends with. Implements `Drafter`."""

    sources = ("echo",)
    caches = ()

    def __init__(self, given: DrafterInput):
        self.prompt = list(given.tokens)

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
