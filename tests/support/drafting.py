"""Drafters of small tables, and sequences that draft with them."""

import numpy as np

from ov_specdec.drafters.hidden_states import HeadCache, HeadDrafter
from ov_specdec.drafters.model import DraftCache, ModelDrafter
from ov_specdec.drafters.prompt_lookup import PromptLookup
from ov_specdec.drafters.suffix import SuffixDrafter
from ov_specdec.drafters.suffix_index import SuffixIndex
from ov_specdec.graph.products import OUTSIDE
from ov_specdec.planning.policies import ConstantLength
from ov_specdec.sampling.samplers import Sampler
from ov_specdec.text.pairing import TokenizerPair
from tests.support.fakes import ScriptedModel
from tests.support.running import paired, rounds, sequence
from tests.traces.letters import Letters, Pieces

PROMPT = [1, 0, 1]


# Two vocabularies: both have tokens that the other one lacks, and the same ones in another order.
MAIN_TOKENS = ("a", "b", "ab", "c", "d", "aa", "e", "f")
DRAFT_TOKENS = {4: ("b", "a", "c", "ba"), 8: ("a", "b", "c", "ab", "d", "cc", "e", "f")}


def table_pair(size, pairing="auto"):
    """The tokenizers of two models of so many tokens."""
    main, draft = (Pieces(Letters(own)) for own in (MAIN_TOKENS[:size], DRAFT_TOKENS[size]))
    return TokenizerPair(main, draft, size, size, pairing)


def scripted(model):
    """A model to run, with the vocabulary of its table, and hidden states for a head."""
    size = len(model([0]))
    return ScriptedModel(model, vocab_size=size, hidden_state=lambda _: np.ones(1))


def reduced(model):
    """The model with the logits of `draft_vocabulary`, which keeps all tokens but one."""
    return lambda tokens: np.where(np.arange(len(model([0]))) == 1, OUTSIDE, model(tokens))


def make_drafter(kind, draft, sampler, min_confidence=0.0):
    if kind == "prompt lookup":
        return PromptLookup()
    if kind == "suffix":
        earlier = SuffixIndex()
        earlier.add([1, 0, 1, 0, 2, 2])
        return SuffixDrafter([[0, 1, 0, 3]], lambda: [earlier])
    if kind in ("intersection", "retokenize"):
        return paired(draft, sampler, table_pair(draft.vocab_size, kind))
    if kind == "head, reduced":
        draft.feature_size = 1
        return HeadDrafter(HeadCache(draft), sampler, min_confidence)
    if kind in ("parallel", "parallel, mask 3"):  # outside the vocabulary, or in it
        draft.mask_token = 3 if "3" in kind else 99
    elif kind not in ("sampled", "reduced"):
        sampler = Sampler(sampler.processors, sampler.ends)
    return ModelDrafter(DraftCache(draft), sampler, min_confidence)


def beside_another(text):
    """The rounds of a sequence in whose passes another one takes part, with drafts of its own."""
    main, caches = text.cache.runner, text.request.drafters[0].caches
    greedy = Sampler()
    drafter = make_drafter("greedy", caches[0].runner, greedy) if caches else PromptLookup()
    for round_ in rounds(text, sequence(main, [0, 1], 100, drafter, ConstantLength(2))):
        assert len(main.sizes[-1]) == 2
        yield round_
