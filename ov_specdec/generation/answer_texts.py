"""`AnswerTexts`: what turns the tokens of an answer into text, and the grammar that it fits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ov_specdec.errors import OptionError
from ov_specdec.options.conflicts import constraints_of
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.sampling.grammar import Grammar
from ov_specdec.text.answer_format import TEXT_ONLY, AnswerFormat
from ov_specdec.text.answer_parser import AnswerParser
from ov_specdec.text.detokenizer import IncrementalDetokenizer, as_text
from ov_specdec.text.grammar import Grammars
from ov_specdec.text.template_format import read_format
from ov_specdec.text.tokenizer import Tokenizer

PROMPT_END = 32
"""Tokens at the end of a prompt that show whether it has begun the reasoning."""


@dataclass
class AnswerTexts:
    """The texts of a model's answers. vocab_size: ids below it have a token.

    eos_token_ids: its end-of-sequence tokens. parsers: of calls and of reasoning, as the options of
    the pipeline name them.
    """

    tokenizer: Tokenizer
    vocab_size: int
    eos_token_ids: frozenset[int]
    parsers: tuple[str, str] = ("auto", "auto")

    @cached_property
    def grammars(self) -> Grammars:
        """What compiles the grammars of structured output."""
        file = self.tokenizer.path / "tokenizer.json"
        return Grammars(file, self.vocab_size, sorted(self.eos_token_ids))

    @cached_property
    def format(self) -> AnswerFormat:
        """How answers mark calls and reasoning, as far as the chat template shows it."""
        return read_format(self.tokenizer, *self.parsers)

    def check(self, options: GenerationOptions) -> None:
        """Refuse tools that the chat template does not show how to call."""
        if options.tools and self.format.calls is None:
            if reason := self.format.reason:
                raise OptionError(
                    f"{{tools}} cannot be used with this model ({reason}): leave it out, or give "
                    "{tool_call_parser}",
                    tools=...,
                    tool_call_parser="none",
                )
            if options.tool_choice != "auto":
                raise OptionError(
                    "{tool_choice} contradicts {tool_call_parser}: leave it out",
                    tool_choice=...,
                    tool_call_parser="none",
                )

    def format_of(self, options: GenerationOptions) -> AnswerFormat:
        """The format of an answer with these options; without a chat template it marks nothing."""
        has_template = options.apply_chat_template and self.tokenizer.chat_template is not None
        return self.format if has_template else TEXT_ONLY

    def has_json_calls(self, options: GenerationOptions) -> bool:
        """Whether an answer with these options may call tools with arguments in JSON."""
        calls = self.format_of(options).calls if options.may_call else None
        return calls is not None and calls.parameters is None

    def open(
        self, ids: Sequence[int], tokens: Sequence[int], options: GenerationOptions, until: float
    ) -> tuple[IncrementalDetokenizer, Grammar | None]:
        """What turns an answer into text, and the grammar that it fits, if any.

        ids: of the prompt. tokens: those before the answer. until: see `Grammars.compile`.
        """
        form, constraints = self.format_of(options), constraints_of(options)
        end = self.tokenizer.decode_all(ids[-PROMPT_END:]) if form.reasoning else ""
        is_reasoning = form.reasoning is not None and form.reasoning.is_open(end)
        has_calls = form.calls is not None and not options.may_call
        read = replace(form, calls=None) if has_calls else form
        parts = read.calls or read.reasoning
        text = IncrementalDetokenizer(
            self.tokenizer.piece_after,
            tokens,
            options.stop_strings,
            options.include_stop_str_in_output,
            self._hidden(options, read, has_constraint=bool(constraints)),
            options.min_tokens,
            AnswerParser(read, options.tools, is_reasoning) if parts else None,
        )
        calls = options.tools and form.calls
        if not (constraints or calls or options.thinking_token_budget is not None):
            return text, None
        eos = options.ending_ids(self.eos_token_ids)
        make = self.grammars.compile(options, eos, form, is_reasoning, until)
        has_forced = options.forced_bos_token_id is not None and len(tokens) == 1
        return text, make(len(tokens), int(has_forced))

    def _hidden(
        self, options: GenerationOptions, form: AnswerFormat, *, has_constraint: bool
    ) -> dict[int, str]:
        """The tokens that the text leaves out, with their names, but not the markers of parts."""
        skips, ends = options.skip_special_tokens, options.ending_ids(self.eos_token_ids)
        special = self.tokenizer.special_tokens if skips else {}
        markers = {*form.tokens.values()} - ends
        hidden = {token: name for token, name in special.items() if token not in markers}
        if not options.include_stop_str_in_output:
            ending = options.stop_token_ids if skips and not has_constraint else ends
            for token in ending:
                hidden[token] = as_text(self.tokenizer.piece(token))
        return hidden
