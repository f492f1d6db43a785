"""Encode a prompt (text, token ids or messages) as ids."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from string import whitespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ov_specdec.checks import require_utf8
from ov_specdec.errors import ContextLengthError, Option, OptionError, shorten
from ov_specdec.options import GenerationOptions
from ov_specdec.text.generated_tokens import GeneratedTokens
from ov_specdec.text.messages import Message, check_messages
from ov_specdec.text.tokenizer import Tokenizer

Prompt = str | Sequence[int] | Sequence[Message] | Mapping[str, Any]
"""A text, token ids, messages, or the `input_ids` of a transformers tokenizer, with an
`attention_mask` without zeros."""

ONE_BY_ONE = "generate takes one prompt, generate_batch a list of them"


def take_prompt(prompt: Prompt | None, options: Mapping[str, Any]) -> tuple[Prompt, dict[str, Any]]:
    """Take a prompt from the options, where transformers has it. Returns it and the other options.

    Raises `OptionError` if there is no prompt, or more than one.
    """
    names = ("inputs", "input_ids")
    prompts = {name: options[name] for name in names if options.get(name) is not None}
    others = {name: value for name, value in options.items() if name not in names}
    mask = others.pop("attention_mask", None)
    if prompt is not None:
        prompts["prompt"] = prompt
    if len(prompts) != 1:
        given = f"the prompt is given {len(prompts)} times" if prompts else "there is no prompt"
        raise OptionError(f"{given}: give one, such as generate('Hello')")
    asked = next(iter(prompts.values()))
    return asked if mask is None else {"input_ids": asked, "attention_mask": mask}, others


def encode_prompt(
    prompt: Prompt,
    options: GenerationOptions,
    tokenizer: Tokenizer,
    generated_tokens: GeneratedTokens,
    context: int,
    check_length: Callable[[int], None] | None = None,
) -> list[int]:
    """The prompt's ids; empty for an empty prompt.

    If the model has a chat template, a text becomes the user's message. Answers among the messages
    keep the ids of `generated_tokens`, unless the options disable caching. Raises `OptionError` for
    other types, for options of a chat template that is not used, and for an attention mask that
    leaves tokens out.

    context: tokens of prompt and output; see `require_room`. check_length: refuses a number of
    tokens; called with that of rendered messages before the work that their answers need.
    """
    ids = _encode(_as_one(prompt), options, tokenizer, generated_tokens, context, check_length)
    if isinstance(prompt, Mapping) and (mask := prompt.get("attention_mask")) is not None:
        _require_whole(np.asarray(mask), len(ids))
    return ids


JOINED = 4
"""Characters that a normalizer may join to one, as NFC joins letters and marks."""


def require_room(what: str | Option, text: str, tokenizer: Tokenizer, context: int) -> None:
    """Refuse a text that is too long even if all its tokens are the longest one.

    Encoding a few MB takes seconds and hundreds of MB of memory. Spaces do not count, since some
    tokenizers join any number of them. context: in tokens.
    """
    num_characters = len(text) - sum(map(text.count, whitespace))
    if num_characters > context * tokenizer.max_token_length * JOINED:
        raise ContextLengthError(
            what,
            f" has {len(text)} characters, and the model's context {context} tokens: shorten it",
        )


def _encode(
    prompt: Any,
    options: GenerationOptions,
    tokenizer: Tokenizer,
    generated_tokens: GeneratedTokens,
    context: int,
    check_length: Callable[[int], None] | None,
) -> list[int]:
    """A prompt without what transformers has around one."""
    if isinstance(prompt, Sequence) and len(prompt) == 0:
        return []
    messages = _as_messages(prompt, options, tokenizer)
    if messages:
        _require_no_language(options)
        if len(messages) > context:  # templates write a token for each
            raise ContextLengthError(
                f"the prompt has {len(messages)} messages, and the model's context {context} "
                "tokens: shorten the prompt"
            )
        render = partial(tokenizer.render_chat, options=options)
        text = render(messages)
        require_room("the prompt", text, tokenizer, context)
        encoded = tokenizer.encode_rendered(text)
        if not options.cache_prompt:
            return encoded.ids
        if check_length is not None:
            check_length(len(encoded.ids))
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
        require_room("the prompt", prompt, tokenizer, context)
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
    """The messages of a prompt; empty if no chat template is used."""
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


def _require_whole(mask: NDArray[Any], num_tokens: int) -> None:
    """Refuse an attention mask that would change what the model reads."""
    if mask.size != num_tokens:
        raise OptionError(
            Option("attention_mask"),
            f" is for {mask.size} tokens, and the prompt has {num_tokens}: leave it out",
        )
    if not np.all(mask == 1):
        raise OptionError(
            Option("attention_mask"), " leaves tokens out: give a prompt without padding"
        )


def _as_ids(prompt: object) -> list[int]:
    """A prompt that is not a text, as token ids; numpy integers are accepted."""
    if isinstance(prompt, Sequence) and not isinstance(prompt, bytes | bytearray):
        ids = list(prompt)
        if all(
            isinstance(token, int | np.integer) and not isinstance(token, bool) for token in ids
        ):
            return [int(token) for token in ids]
    raise OptionError(
        f"the prompt {shorten(prompt)} is neither a text nor a list of token ids or messages: give "
        f"one of these; {ONE_BY_ONE}"
    )
