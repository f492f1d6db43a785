"""`PromptEncoder`: prompts and reference texts as ids, as far as the model has room for them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from ov_specdec.drafters.suffix_index import SuffixIndex
from ov_specdec.errors import CacheFullError, Option, OptionError
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.runner.base import Runner
from ov_specdec.text.generated_tokens import GeneratedTokens
from ov_specdec.text.prompt import (
    Prompt,
    TextToText,
    encode_prompt,
    escaped_copy,
    may_fit,
    overflow,
)
from ov_specdec.text.tokenizer import Tokenizer


@dataclass
class PromptEncoder:
    """Encodes what the main model reads. vocab_size: ids below it have a token.

    text_to_text: how the decoder of an encoder-decoder model starts. generated_tokens: the answers
    to prompts with a salt.
    """

    main: Runner
    tokenizer: Tokenizer
    vocab_size: int
    text_to_text: TextToText | None = None
    generated_tokens: GeneratedTokens = field(default_factory=GeneratedTokens)
    _shared: WeakValueDictionary[Any, SuffixIndex] = field(default_factory=WeakValueDictionary)
    """The reference texts of unfinished generations."""

    def encode(self, prompt: Prompt, options: GenerationOptions) -> list[int]:
        """The prompt's ids; `OptionError` if it is empty, too long or invalid."""
        is_text_to_text = self.text_to_text is not None
        for name in () if is_text_to_text else ("src_lang", "tgt_lang"):
            if (language := getattr(options, name)) is not None:
                raise OptionError(
                    "{option} needs an encoder-decoder model: leave it out",
                    option=Option(name, language),
                )
        context = self.main.max_length
        ids = encode_prompt(prompt, options, self.tokenizer, self.generated_tokens, context)
        if not ids:
            raise OptionError("the prompt is empty: give at least one token of text")
        # An output needs room, except beside a prompt that is the input of an encoder.
        if len(ids) > context or (len(ids) == context and not is_text_to_text):
            raise overflow(f"{len(ids)} tokens", context)
        if not is_text_to_text:
            self._check_capacity(len(ids), options.max_new_tokens)
        self._require_ids("the prompt", ids)
        return ids

    def check(self, options: GenerationOptions) -> None:
        """Refuse options with ids that the main model does not have."""
        for name, ids in options.token_ids().items():
            if ids:
                self._require_ids("{option}", ids, option=Option(name))

    def references(
        self, ids: list[int], options: GenerationOptions, *, has_copy: bool
    ) -> SuffixIndex | None:
        """The index of the reference texts, which all choices of a request share.

        ids: the prompt. has_copy: the index has them too, as calls in JSON repeat them.
        """
        texts = tuple(options.reference_texts)
        copy = escaped_copy(ids, self.tokenizer) if has_copy else []
        if not texts and not copy:
            return None
        key = (options.cache_salt, texts, tuple(copy))
        if (known := self._shared.get(key)) is not None:
            return known
        context = self.main.max_length
        may_all_fit = all(may_fit(text, self.tokenizer, context) for text in texts)
        encoded = [self.tokenizer.encode_rendered(text).ids for text in texts if may_all_fit]
        if not may_all_fit or sum(map(len, encoded)) > context:
            raise OptionError(
                f"{{reference_texts}} have more tokens than the model's context, {context}: "
                "shorten them",
                reference_texts=texts,
            )
        self._shared[key] = index = SuffixIndex(filter(None, [*encoded, copy]))
        return index

    def _check_capacity(self, num_tokens: int, max_new_tokens: int | None) -> None:
        """Refuse a prompt that has no room in the KV cache with its output."""
        if (capacity := self.main.capacity) is None:
            return
        num_new = 1 if max_new_tokens is None else max_new_tokens
        needed = min(num_tokens + num_new, self.main.max_length)
        if needed > capacity:
            raise CacheFullError(
                f"prompt and {{max_new_tokens}} need {needed} tokens of KV cache, "
                f"{{kv_cache_size}} has room for {capacity}: raise it, or lower {{max_new_tokens}}",
                max_new_tokens=...,
                kv_cache_size=...,
            )

    def _require_ids(self, where: str, ids: Iterable[int], **options: object) -> None:
        for token in ids:
            if not 0 <= token < self.vocab_size:
                most = self.vocab_size - 1
                raise OptionError(
                    f"{where} holds token id {token}: the model has 0 to {most}", **options
                )
