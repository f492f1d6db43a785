"""A text generator over scripted models with random logits, and the tokens of a real tokenizer."""

from pathlib import Path

import numpy as np

from ov_specdec.options.generation import GenerationOptions
from ov_specdec.text.tokenizer import load_tokenizer
from tests.support import scripted
from tests.support.fakes import ScriptedModel, mixed

FOLDER = Path(__file__).parents[1] / "data" / "hybrid" / "lfm2" / "main"
TOKENIZER = load_tokenizer(FOLDER)
"""Byte-level BPE of 290 tokens, of which the first ends a text."""

SIZE = TOKENIZER.vocab_size


def random_logits(noise=0.0):
    """A script of random rows that depend on all tokens. noise: makes a draft of the model."""

    def row(tokens):
        numbers = np.random.default_rng(mixed(tokens, 0))
        return (numbers.normal(size=SIZE) * 3 + noise * numbers.normal(size=SIZE)).astype("f4")

    return row


MODEL = random_logits()


def generator(script=MODEL, draft=None, drafter=None, eos=(0,), tokenizer=TOKENIZER, **model):
    """Generates with a scripted model, and with a draft model if its script is given."""
    known = {"vocab_size": tokenizer.vocab_size, **model}
    main = ScriptedModel(script, **known)
    other = None if draft is None else ScriptedModel(draft, **known)
    return scripted.generator(main, other, drafter=drafter, tokenizer=tokenizer, eos=eos)


def generate(made, prompt="def area(", **options):
    """One result."""
    [result] = made.batch([(prompt, GenerationOptions(**options))])
    return result
