"""A drafter from outside the package, and processors that keep state of a text."""

import pytest

from ov_specdec import OptionError, SpeculativePipeline
from ov_specdec.drafters.base import Proposal
from ov_specdec.drafters.factory import DrafterKind, Request, draft_model
from ov_specdec.planning.draft_length import Offer
from ov_specdec.sampling.verification import Draft

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
