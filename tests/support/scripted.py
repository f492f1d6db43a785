"""A text generator over scripted models, whose tokens are letters."""

from threading import Event

from ov_specdec.drafters.factory import kind_of
from ov_specdec.engine.answers import Answers
from ov_specdec.engine.engine import Engine
from ov_specdec.engine.loop import EngineLoop
from ov_specdec.engine.scheduler import StepLimits
from ov_specdec.generation.sequence_factory import SequenceFactory
from ov_specdec.generation.text_generator import TextGenerator
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.planning.policies import LearnedStats
from tests.traces.letters import Letters

PATIENCE = 30.0
"""Seconds after which a thread that should have ended has not."""


LETTERS = Letters(tuple(map(chr, range(ord("A"), ord("A") + 50))))
"""A tokenizer of 50 letters."""


class Gate:
    """A model that reports each pass and waits until it may go on. Implements `Runner`."""

    def __init__(self, model):
        self._model = model
        self.entered, self.may_go_on = Event(), Event()

    def __getattr__(self, name):
        return getattr(self._model, name)

    def forward(self, spans):
        self.entered.set()
        assert self.may_go_on.wait(PATIENCE)
        return self._model.forward(spans)


def generator(
    main, draft=None, limits=None, drafter=None, costs=None, pairing=None, tokenizer=None, eos=()
):
    """Generates with a main model, and a draft model where there is one, unless a drafter is given.

    drafter: its name or kind. tokenizer: letters by default.
    """
    learned = LearnedStats() if costs is None else LearnedStats(costs)
    loop = EngineLoop(Engine(main, draft, limits or StepLimits(), learned.costs))
    kind = kind_of(drafter or ("model" if draft else "none"))
    tokenizer, ends = tokenizer or LETTERS, frozenset(eos)
    sequences = SequenceFactory(main, kind, ends, draft, pairing, learned)
    return TextGenerator(sequences, loop, Answers(main), tokenizer, main.vocab_size)


def stream(main, draft=None, prompt="ABC", **options):
    """A stream of a generator of its own."""
    return generator(main, draft).stream(prompt, GenerationOptions(**options))
