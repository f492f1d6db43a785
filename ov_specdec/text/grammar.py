"""Structured output: options of a generation as a grammar, compiled by llguidance."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from functools import cached_property, partial
from hashlib import blake2b
from math import inf
from pathlib import Path
from time import monotonic, thread_time
from typing import TYPE_CHECKING, Any

from ov_specdec.errors import BusyError, Option, OptionError, requiring
from ov_specdec.options.conflicts import OF_JSON, constraints_of
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.options.schemas import require_exact_within, simplify
from ov_specdec.options.structured import read_schema
from ov_specdec.sampling.grammar import Grammar
from ov_specdec.text.answer_format import TEXT_ONLY, AnswerFormat
from ov_specdec.text.answer_grammar import write_answer
from ov_specdec.text.grammar_process import Trial, first_error, new_matcher, open_tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

WHITESPACE: Mapping[str, Any] = {
    "compact": {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"},
    "spaced": {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "},
    "any": {"whitespace_flexible": True},
}
"""llguidance's options of JSON, by `json_whitespace`."""

MAX_TRIED = 1024
"""Maximum grammars whose error, or that they have none, is remembered."""

QUICK = 0.1
"""Seconds of processor time: to compile what takes longer is as much work as to try it."""


class Grammars:
    """Compiles grammars for one tokenizer, which is read at the first use.

    file: its tokenizer.json. vocab_size: columns of the logits. eos_ids: the model's
    end-of-sequence tokens.
    """

    def __init__(self, file: Path, vocab_size: int, eos_ids: Sequence[int]) -> None:
        self._arguments = file, vocab_size, eos_ids
        self._trial: Trial | None = None
        self._errors: dict[bytes, str] = {}
        self._slow = set[bytes]()

    def try_first(self) -> None:
        """From now on, try each new grammar in a child process first: others may have made it."""
        self._trial = Trial(*self._arguments)

    def compile(
        self,
        options: GenerationOptions,
        ends: Set[int],
        form: AnswerFormat = TEXT_ONLY,
        is_reasoning: bool | None = False,
        until: float = inf,
    ) -> Callable[..., Grammar]:
        """What makes the grammar of a generation: a `Grammar` without its last two arguments.

        ends: tokens that end its text. form: of answers with calls and reasoning. is_reasoning:
        see `ReasoningFormat.is_open`. until: the latest time for a trial to begin, or what takes as
        long, by `time.monotonic`. Raises `OptionError` for a grammar that is invalid, or that fails
        within its first tokens, and `BusyError` for one that is not tried in time.
        """
        [constraint] = constraints_of(options) or [""]
        name = constraint or ("tools" if options.tools else "thinking_token_budget")
        if not ends:
            raise OptionError(
                "{option} needs a token that ends the text, and this model has none: give "
                "{eos_token_id}",
                option=Option(name),
                eos_token_id=...,
            )
        with requiring(f"{name} needs llguidance", "structured"):
            text = _write(constraint, options) if constraint else None
            tokenizer = self._tokenizer_for(name)
        error_of = partial(self._error_of, until)
        _require_none("" if text is None else error_of(text), name)
        if form.reasoning or options.tools or text is None:
            text = write_answer(form, options, ends, is_reasoning, text, error_of)
            name = "tools" if options.tools else name
            _require_none(error_of(text), name)
        return partial(Grammar, partial(self._make, text), tokenizer, ends, name=name)

    def close(self) -> None:
        """End the child process."""
        if self._trial is not None:
            self._trial.close()

    @cached_property
    def _tokenizer(self) -> "LLTokenizer":
        return open_tokenizer(*self._arguments)

    def _tokenizer_for(self, name: str) -> "LLTokenizer":
        """The tokenizer for the grammar of this option."""
        try:
            return self._tokenizer
        except ValueError as error:
            raise OptionError(
                f"{{option}} needs a BPE tokenizer, and not that of this model ({error}): use "
                "another model",
                option=Option(name),
            ) from error

    def _error_of(self, until: float, grammar: str) -> str:
        key, is_late = _key(grammar), monotonic() >= until
        error = None if is_late and key in self._slow else self._errors.get(key)
        if error is None:
            tried = self._trial or partial(first_error, self._tokenizer)
            if is_late or (error := tried(grammar)) is None:
                raise BusyError("the machine is too busy to try a grammar: ask again later")
            if len(self._errors) >= MAX_TRIED:
                self._errors.clear()
                self._slow.clear()
            self._errors[key] = error
        return error

    def _make(self, grammar: str) -> "LLMatcher":
        begin = thread_time()
        matcher = new_matcher(self._tokenizer, grammar)
        if thread_time() - begin > QUICK:
            self._slow.add(_key(grammar))
        return matcher


def parser_of(options: GenerationOptions, grammar: Grammar | None) -> Callable[[str], Any] | None:
    """What turns a complete text into its value: JSON, an instance of a pydantic model, or itself.

    None unless its grammar accepts the text, and if the text has more than what fits. It can be
    pickled, unless it is of a pydantic model.
    """
    constraints = constraints_of(options)
    if grammar is None or not constraints or not grammar.accepts():
        return None
    if options.include_stop_str_in_output or not options.skip_special_tokens:
        return None
    of_json = getattr(options.json_schema, "model_validate_json", json.loads)
    return of_json if constraints[0] in OF_JSON else str


def _key(grammar: str) -> bytes:
    return blake2b(grammar.encode()).digest()


def _require_none(error: str, name: str) -> None:
    if error:
        raise OptionError(
            f"{{option}} cannot be used ({error}): see docs/structured-output.md",
            option=Option(name),
        )


@contextmanager
def _refused_by(name: str) -> Iterator[None]:
    """Refuse the schema of an option that is read otherwise than written, or nested too deep."""
    try:
        yield
    except (ValueError, RecursionError) as error:
        raise OptionError(
            f"{{option}} cannot be kept ({error}): give numbers below 2**53, others as texts, "
            "whole characters, less depth",
            option=Option(name),
        ) from error


def _write(name: str, options: GenerationOptions) -> str:
    from llguidance import LLMatcher

    if name in OF_JSON:
        schema = read_schema(options.json_schema) if name == "json_schema" else {"type": "object"}
        spaces = WHITESPACE[options.json_whitespace]
        with _refused_by(name):
            text = json.dumps(simplify(schema), allow_nan=False)
            return LLMatcher.grammar_from_json_schema(text, overrides=spaces)
    if name == "regex":
        return LLMatcher.grammar_from_regex(str(options.regex))
    grammar = options.grammar
    with _refused_by(name):
        require_exact_within(str(grammar))
    if name == "choices":  # one terminal, of which a text has any number of alternatives
        texts = " | ".join(json.dumps(text, ensure_ascii=False) for text in options.choices)
        grammar = f"start: CHOICE\nCHOICE: {texts}"
    return LLMatcher.grammar_from_lark(str(grammar))
