"""A text generator over scripted models, whose tokens are letters."""

from threading import Event
from types import SimpleNamespace

from ov_specdec.drafters.factory import DrafterFactory, kind_of
from ov_specdec.drafters.pairing import DraftModel
from ov_specdec.engine import Engine, EngineLoop, Limits
from ov_specdec.generation import TextGenerator
from ov_specdec.options import GenerationOptions
from ov_specdec.planning.schedule import LearnedStats

PATIENCE = 30.0
"""Seconds after which a thread that should have ended has not."""


class Letters:
    """A tokenizer of 50 letters."""

    chat_template = None
    max_token_length = 1

    def encode(self, text, src_lang=None):
        return [ord(letter) - ord("A") for letter in text]

    def encode_rendered(self, text):
        return SimpleNamespace(ids=self.encode(text))

    def decode(self, ids):
        return "".join(chr(ord("A") + token) for token in ids)


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


def generator(main, draft=None, limits=None, drafters=None, costs=None):
    """Generates with a main model, and a draft model where there is one, unless drafters differ."""
    learned = LearnedStats() if costs is None else LearnedStats(costs)
    loop = EngineLoop(Engine(main, draft, limits or Limits(), learned.costs))
    if drafters is None:
        kind = kind_of("model" if draft else "none")
        drafters = DrafterFactory(kind, draft and DraftModel(draft))
    return TextGenerator(main, loop, Letters(), 50, frozenset(), drafters, learned)


def stream(main, draft=None, prompt="ABC", **options):
    """A stream of a generator of its own."""
    return generator(main, draft).stream(prompt, GenerationOptions(**options))
