"""From a prompt, which is a text, token ids or messages, to ids."""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from ov_specdec.checks import require_utf8
from ov_specdec.errors import Option, OptionError, shorten
from ov_specdec.options import GenerationOptions
from ov_specdec.text.generated_tokens import GeneratedTokens
from ov_specdec.text.messages import Message, check_messages
from ov_specdec.text.tokenizer import Tokenizer

Prompt = str | Sequence[int] | Sequence[Message]


def encode_prompt(
    prompt: Prompt,
    options: GenerationOptions,
    tokenizer: Tokenizer,
    generated_tokens: GeneratedTokens,
) -> list[int]:
    """The prompt's ids, none for an empty one.

    A text goes into the chat template as the user's message, where the model has one. Messages hold
    the answers of `generated_tokens` as they were generated, unless nothing of them is to be
    cached. Raises `OptionError` for what is none of the three, and for options of a chat template
    that is not used.
    """
    if isinstance(prompt, Sequence) and len(prompt) == 0:
        return []
    messages = _as_messages(prompt, options, tokenizer)
    if messages:
        _require_no_language(options)
        render = partial(tokenizer.render_chat, options=options)
        encoded = tokenizer.encode_rendered(render(messages))
        if not options.cache_prompt:
            return encoded.ids
        salt = options.cache_salt
        return generated_tokens.restore(encoded, messages, render, tokenizer.decode_all, salt)
    if given := options.chat_options():
        raise OptionError(
            Option(given[0]),
            " has no effect on a prompt that is not put into a chat template: leave it out, or "
            "give messages to a model that has a template",
        )
    if isinstance(prompt, str):
        require_utf8("the prompt", prompt)
        return tokenizer.encode(prompt, options.src_lang)
    _require_no_language(options)
    return _as_ids(prompt)


def _require_no_language(options: GenerationOptions) -> None:
    if options.src_lang is not None:
        raise OptionError(
            Option("src_lang", options.src_lang),
            " has no effect on messages and token ids: leave it out, or give the prompt as one "
            "text",
        )


def _as_messages(prompt: Prompt, options: GenerationOptions, tokenizer: Tokenizer) -> list[Message]:
    """The messages that a prompt amounts to; none for one that is not put into a template."""
    if isinstance(prompt, str):
        if not options.apply_chat_template or tokenizer.chat_template is None:
            return []
        require_utf8("the prompt", prompt)
        return [{"role": "user", "content": prompt}]
    if not isinstance(prompt, Sequence) or not any(isinstance(item, Mapping) for item in prompt):
        return []
    if not options.apply_chat_template:
        raise OptionError(
            "messages cannot be given with ",
            Option("apply_chat_template", False),
            ": leave it out, or give the prompt as one text",
        )
    if tokenizer.chat_template is None:
        raise OptionError(
            "the model has no chat template to put messages into: give the prompt as one text or "
            "as ids, or add a chat_template.jinja to the model's folder"
        )
    return [*check_messages(prompt)]


def _as_ids(prompt: object) -> list[int]:
    """A prompt that is not a text as token ids; numpy's integers and arrays are as good."""
    if isinstance(prompt, Sequence | np.ndarray) and not isinstance(prompt, bytes | bytearray):
        ids = list(prompt)
        if all(
            isinstance(token, int | np.integer) and not isinstance(token, bool) for token in ids
        ):
            return [int(token) for token in ids]
    raise OptionError(
        f"the prompt {shorten(prompt)} is neither a text nor a list of token ids or messages: give "
        "one of these; several prompts take one call each"
    )
