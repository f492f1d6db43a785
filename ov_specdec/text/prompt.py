"""Encode a prompt (text, token ids or messages) as ids, as far as the model has room for it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ov_specdec.errors import CacheFullError, ContextLengthError, Option, OptionError, shorten
from ov_specdec.options.conflicts import given_chat_options
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.options.model import require_utf8
from ov_specdec.text.chat_template import Message, check_messages
from ov_specdec.text.generated_tokens import GeneratedTokens
from ov_specdec.text.tokenizer import Tokenizer

Prompt = str | Sequence[int] | Sequence[Message] | Mapping[str, Any]
"""A text, token ids, messages, or the `input_ids` of a transformers tokenizer, with an
`attention_mask` without zeros."""

MAX_ESCAPED = 16_384
"""Tokens at the end of a prompt that are copied, which takes some 60 ms."""

ONE_BY_ONE = "generate takes one prompt, generate_batch a list of them"


def encode_prompt(
    prompt: Prompt,
    options: GenerationOptions,
    tokenizer: Tokenizer,
    generated_tokens: GeneratedTokens,
    context: int,
) -> list[int]:
    """The prompt's ids; empty for an empty prompt.

    If the model has a chat template, a text becomes the user's message. With a `cache_salt`, which
    says whose conversation it is, answers among the messages keep the ids of `generated_tokens`.
    Raises `OptionError` for other types, for options of a chat template that is not used, and for
    an attention mask that leaves tokens out. context: tokens of prompt and output; see `may_fit`.
    """
    given = _as_one(prompt)
    if isinstance(given, Sequence) and len(given) == 0:
        return []
    if isinstance(given, str) and not given.isascii():
        require_utf8("the prompt", given)
    messages = _as_messages(given, options, tokenizer)
    _check_used(options, has_template=bool(messages), is_text=isinstance(given, str))
    if len(messages) > context:  # templates write a token for each
        raise overflow(f"{len(messages)} messages", context)
    text = tokenizer.render_chat(messages, options) if messages else given
    if not isinstance(text, str):
        ids = _as_ids(text)
    elif not may_fit(text, tokenizer, context):
        raise overflow("more tokens", context)
    else:
        adds = not messages if options.add_special_tokens is None else options.add_special_tokens
        encoded = tokenizer.encode_rendered(text, options.src_lang, add_special_tokens=adds)
        ids = encoded.ids
        if messages and (salt := options.cache_salt) is not None:
            told = options.copy_with(add_generation_prompt=False)
            render = lambda answer: tokenizer.render_chat([*messages, answer], told)  # noqa: E731
            begins = not options.continue_final_message
            ids = generated_tokens.restore(encoded, salt, render if begins else None)
    if isinstance(prompt, Mapping) and prompt.get("attention_mask") is not None:
        _check_mask(prompt["attention_mask"], len(ids))
    return ids


def _check_used(options: GenerationOptions, *, has_template: bool, is_text: bool) -> None:
    if not has_template and (unused := given_chat_options(options)):
        raise OptionError(
            "{option} has no effect on a prompt that is not put into a chat template: leave it "
            "out, or give messages to a model that has a template",
            option=Option(unused[0]),
        )
    if options.src_lang is not None and (has_template or not is_text):
        raise OptionError(
            "{src_lang} has no effect on messages and token ids: leave it out, or give the prompt "
            "as one text",
            src_lang=options.src_lang,
        )


def _check_mask(given: Any, num_tokens: int) -> None:
    """Refuse a mask that would change what the model reads."""
    mask = np.asarray(given)
    if mask.size != num_tokens:
        raise OptionError(
            f"{{attention_mask}} is for {mask.size} tokens, and the prompt has {num_tokens}: "
            "leave it out",
            attention_mask=...,
        )
    if not np.all(mask == 1):
        raise OptionError(
            "{attention_mask} leaves tokens out: give a prompt without padding", attention_mask=...
        )


PIECE = 8
"""Characters for each token of the context that are encoded unchecked: twice those of English."""


def may_fit(text: str, tokenizer: Tokenizer, context: int) -> bool:
    """Whether a text may fit the context, by the tokens of its pieces from the first one on.

    So one that is far too long is not encoded to its end. Cuts add a few tokens, hence twice the
    context. Characters do not count, since some tokenizers join spaces.
    """
    piece, left = PIECE * context, 2 * context
    for start in range(0, len(text) if len(text) > piece else 0, piece):
        left -= len(tokenizer.encode_rendered(text[start : start + piece]).ids)
        if left < 0:
            return False
    return True


def escaped_copy(ids: Sequence[int], tokenizer: Tokenizer) -> list[int]:
    """The end of a prompt as a string of JSON has it.

    A call that repeats a file has it so, where matches with the file end at each line break.
    """
    text = tokenizer.decode_all(ids[-MAX_ESCAPED:])
    return tokenizer.encode_rendered(json.dumps(text, ensure_ascii=False)[1:-1]).ids


def overflow(size: str, context: int) -> ContextLengthError:
    """The error for a prompt that is too long, in words by which clients recognize it."""
    return ContextLengthError(
        f"This model's maximum context length is {context} tokens. The prompt is too long, with "
        f"{size}: shorten it"
    )


def _as_messages(prompt: Prompt, options: GenerationOptions, tokenizer: Tokenizer) -> list[Message]:
    """The messages of a prompt; empty if no chat template is used."""
    if isinstance(prompt, str):
        if not options.apply_chat_template or tokenizer.chat_template is None:
            return []
        return [{"role": "user", "content": prompt}]
    if not isinstance(prompt, Sequence) or not any(isinstance(item, Mapping) for item in prompt):
        return []
    if not options.apply_chat_template:
        raise OptionError(
            "messages cannot be given with {apply_chat_template}: leave it out, or give the "
            "prompt as one text",
            apply_chat_template=False,
        )
    if tokenizer.chat_template is None:
        raise OptionError(
            "the model has no chat template to put messages into: give the prompt as one text or "
            "as ids, or add a chat_template.jinja to the model's folder"
        )
    return [*check_messages(prompt)]


def _as_one(prompt: Any) -> Any:
    """A prompt without the mask, tensors and batch axis of transformers."""
    if isinstance(prompt, Mapping) and "input_ids" in prompt:
        prompt = prompt["input_ids"]
    if hasattr(prompt, "tolist"):  # an array or a tensor
        prompt = prompt.tolist()
    if not isinstance(prompt, list | tuple) or not prompt:
        return prompt
    if all(isinstance(each, str) for each in prompt):
        raise OptionError(f"the prompt {shorten(prompt)} is a list of texts: {ONE_BY_ONE}")
    if all(isinstance(each, list | tuple) for each in prompt):
        if len(prompt) > 1:
            raise OptionError(f"the prompt has {len(prompt)} rows: {ONE_BY_ONE}")
        return prompt[0]
    return prompt


def _as_ids(prompt: object) -> list[int]:
    """A prompt that is not a text, as token ids; numpy integers are accepted."""
    if isinstance(prompt, Sequence) and not isinstance(prompt, bytes | bytearray):
        kinds = {type(token) for token in prompt}
        if all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds):
            return [int(token) for token in prompt]
    raise OptionError(
        f"the prompt {shorten(prompt)} is neither a text nor a list of token ids or messages: give "
        f"one of these; {ONE_BY_ONE}"
    )


@dataclass(frozen=True)
class TextToText:
    """How the decoder of an encoder-decoder model starts.

    decoder_start_token_id: its whole prompt. forced_bos_token_id: the first token of outputs,
    unless options give another; None: the model chooses it.
    """

    decoder_start_token_id: int
    forced_bos_token_id: int | None = None

    def complete(self, options: GenerationOptions, tokenizer: Tokenizer) -> GenerationOptions:
        """The options with the first token of the output.

        Raises `OptionError` for a language that the tokenizer does not have, and for options that
        need a decoder-only model.
        """
        if options.prompt_logprobs is not None:
            raise OptionError(
                "{prompt_logprobs} cannot be given by an encoder-decoder model, whose prompt has "
                "no probabilities: leave it out",
                prompt_logprobs=options.prompt_logprobs,
            )
        forced = options.forced_bos_token_id
        if options.tgt_lang is not None:
            forced = tokenizer.find_language("tgt_lang", options.tgt_lang)
        elif forced is None:
            forced = self.forced_bos_token_id
        return options.copy_with(forced_bos_token_id=forced, tgt_lang=None)


@dataclass
class PromptEncoder:
    """Encodes what a main model reads. vocab_size: ids below it have a token.

    context, capacity: maximum tokens of prompt and output, and those for which the KV cache has
    room; None: the device manages it. text_to_text: of an encoder-decoder model. generated_tokens:
    the answers to prompts with a salt.
    """

    tokenizer: Tokenizer
    vocab_size: int
    context: int
    capacity: int | None = None
    text_to_text: TextToText | None = None
    generated_tokens: GeneratedTokens = field(default_factory=GeneratedTokens)

    def encode(self, prompt: Prompt, options: GenerationOptions) -> list[int]:
        """The prompt's ids; `OptionError` if it is empty, too long or invalid."""
        context, is_text_to_text = self.context, self.text_to_text is not None
        for name in () if is_text_to_text else ("src_lang", "tgt_lang"):
            if (language := getattr(options, name)) is not None:
                raise OptionError(
                    "{option} needs an encoder-decoder model: leave it out",
                    option=Option(name, language),
                )
        ids = encode_prompt(prompt, options, self.tokenizer, self.generated_tokens, context)
        if not ids:
            raise OptionError("the prompt is empty: give at least one token of text")
        # An output needs room, except beside a prompt that is the input of an encoder.
        if len(ids) > context or (len(ids) == context and not is_text_to_text):
            raise overflow(f"{len(ids)} tokens", context)
        num_new = 1 if options.max_new_tokens is None else options.max_new_tokens
        needed = min(len(ids) + num_new, context)
        if self.capacity is not None and needed > self.capacity and not is_text_to_text:
            raise CacheFullError(
                f"prompt and {{max_new_tokens}} need {needed} tokens of KV cache, "
                f"{{kv_cache_size}} has room for {self.capacity}: raise it, or lower "
                "{max_new_tokens}",
                max_new_tokens=...,
                kv_cache_size=...,
            )
        self._require_ids("the prompt", ids)
        self.check(options)
        return ids

    def check(self, options: GenerationOptions) -> None:
        """Refuse options with ids that the main model does not have."""
        for name, ids in options.token_ids().items():
            if ids:
                self._require_ids("{option}", ids, option=Option(name))

    def _require_ids(self, where: str, ids: Iterable[int], **options: object) -> None:
        for token in ids:
            if not 0 <= token < self.vocab_size:
                most = self.vocab_size - 1
                raise OptionError(
                    f"{where} holds token id {token}: the model has 0 to {most}", **options
                )
