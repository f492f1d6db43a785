"""Answers of a model that draws any tokens which fit, and what the parser reads in them."""

import json
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from llguidance import LLTokenizer
from tokenizers import Tokenizer

from ov_specdec.results.parts import joined
from ov_specdec.sampling.grammar import Grammar
from ov_specdec.text.answer_format import CALL_FORMATS, REASONING_FORMATS, AnswerFormat
from ov_specdec.text.answer_grammar import write_answer
from ov_specdec.text.answer_parser import AnswerParser
from ov_specdec.text.detokenizer import CharacterStream
from ov_specdec.text.grammar_process import first_error, new_matcher
from ov_specdec.text.tokenizer import bytes_reader

FILE = Path(__file__).parents[2] / "models" / "main" / "tokenizer.json"
MARKERS = ("<tool_call>", "</tool_call>", "<think>", "</think>", "[TOOL_CALLS]")
MOST = 400
"""Tokens of an answer."""


class Words:
    """A tokenizer of 4096 tokens, and the markers as tokens."""

    def __init__(self, *markers):
        spec = json.loads(FILE.read_text(encoding="utf-8"))
        self.num_words = len(spec["model"]["vocab"])
        self.markers = {name: self.num_words + n for n, name in enumerate(markers)}
        like = spec["added_tokens"][0]
        spec["added_tokens"] += [
            {**like, "id": token, "content": name, "special": name[0] != "<"}
            for name, token in self.markers.items()
        ]
        self._read = bytes_reader(spec)
        self.backend = Tokenizer.from_str(json.dumps(spec))
        size = self.num_words + len(markers)
        self.matching = LLTokenizer(json.dumps(spec), n_vocab=size, eos_token=[0])

    def piece(self, before, token):
        return self._read(self.backend.id_to_token(token))

    def encode(self, text):
        return self.backend.encode(text, add_special_tokens=False).ids

    def text(self, ids):
        return self.backend.decode(ids, skip_special_tokens=False)

    def form(self, name, *, thinks=False):
        """A format with the markers that this tokenizer has."""
        reasoning = REASONING_FORMATS[name] if thinks else None
        return AnswerFormat(CALL_FORMATS[name], reasoning, special=self.markers)

    @cached_property
    def structure(self):
        """Tokens that end strings, values and calls: without them answers hardly end."""
        texts = ('"', '"}', '",', "}", "]", "\n", "</", ">", "parameter", "0", "1")
        return {self.encode(text)[0] for text in texts} | {*self.markers.values()}


TOKENS, LETTERS = Words(*MARKERS), Words()
"""With the markers as tokens, and with markers that are spelled."""


def grammar_of(words, form, options, *, is_reasoning=False, text=None):
    return write_answer(
        form, options, frozenset({0}), is_reasoning, text, lambda g: first_error(words.matching, g)
    )


def draw(words, grammar, seed, most=MOST):
    """Tokens that fit, and whether they end by themselves."""
    numbers, ids = np.random.default_rng(seed), []
    make = partial(new_matcher, words.matching, grammar)
    processor = Grammar(make, words.matching, frozenset({0}), 0)
    row = np.zeros(words.matching.vocab_size, np.float32)
    while len(ids) < most:
        end, *others = np.isfinite(processor(ids, row))
        found = [*np.flatnonzero(others) + 1]
        if end and (not found or numbers.random() < 0.2):
            return ids, True
        likely = [token for token in found if token in words.structure]
        ids.append(int(numbers.choice(likely if likely and numbers.random() < 0.6 else found)))
        processor.follow(ids[-1:])
    return ids, False


def fits(words, grammar, ids):
    """How many of these tokens fit, and whether the answer may end after them."""
    matcher = new_matcher(words.matching, grammar)
    num = matcher.try_consume_tokens(list(ids))
    return num, matcher.is_accepting()


def read(words, form, tools, ids, *, is_reasoning=False):
    """The merged parts of tokens."""
    parser = AnswerParser(form, tools, is_reasoning)
    stream = CharacterStream(words.piece, [])
    parts = [part for token in ids for part in parser.push(stream.push(token), token)]
    return [*joined([*parts, *parser.end()])]
