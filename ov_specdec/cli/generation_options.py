"""The options of a generation, as `generate`, `compare` and `chat` take them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import click

from ov_specdec.cli.escapes import unescape
from ov_specdec.options import GenerationOptions, Schedule


def _ids(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if text)
    except ValueError as error:
        raise click.BadParameter(f"'{text}' must be token ids with commas between") from error


def _bias(text: str) -> tuple[int, float]:
    token, _, bias = text.partition("=")
    try:
        return int(token), float(bias)
    except ValueError as error:
        raise click.BadParameter(f"'{text}' must have the form ID=BIAS") from error


def _length(text: str) -> int | str:
    try:
        return text if text == "auto" else int(text)
    except ValueError as error:
        raise click.BadParameter(f"'{text}' must be auto or a whole number") from error


def _stop(text: str) -> str:
    """A stop string, its escapes replaced: a shell passes them on as they are typed."""
    try:
        return unescape(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} cannot be read: {error}") from error


def _object(text: str) -> dict[str, Any]:
    """A JSON object that was typed."""
    try:
        content = json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"'{text}' is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise click.BadParameter(f"'{text}' must be a JSON object")
    return content


def _text(file: str) -> str:
    """The text in a file."""
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"'{file}' cannot be read as text: {error}") from error


def _schemas(file: str) -> list[Any]:
    """The list in a JSON file."""
    try:
        content = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"'{file}' cannot be read as JSON: {error}") from error
    if not isinstance(content, list):
        raise click.BadParameter(f"'{file}' must hold a JSON list of schemas")
    return content


def _number(name: str, kind: type, text: str, default: float | None = None) -> Callable[..., Any]:
    """An option for a number; its default is that of `GenerationOptions` unless one is given."""
    if default is None:
        default = getattr(GenerationOptions, name)
    flag = "--" + name.replace("_", "-")
    metavar = "N" if kind is int else "X"
    shown = default is not None
    return click.option(
        flag, type=kind, metavar=metavar, default=default, show_default=shown, help=text
    )


def length_option(default: int | None = None) -> Callable[..., Any]:
    """The option --max-new-tokens, which commands have with defaults of their own."""
    return _number("max_new_tokens", int, "Most tokens to generate.", default)


def seed_option() -> Callable[..., Any]:
    """The option --seed."""
    return _number("seed", int, "Makes the run repeat.")


SPECULATION_OPTIONS = (
    click.option(
        "--num-assistant-tokens",
        type=_length,
        metavar="auto|N",
        default="auto",
        show_default=True,
        help="Draft tokens per round; 0 is plain decoding.",
    ),
    click.option(
        "--num-assistant-tokens-schedule",
        type=click.Choice(get_args(Schedule)),
        help="How it changes. [constant for N; adaptive for auto]",
    ),
    _number(
        "assistant_confidence_threshold",
        float,
        "End a draft after a draft token that the draft model gives less probability.",
    ),
    click.option(
        "--assistant-do-sample/--no-assistant-do-sample",
        default=GenerationOptions.assistant_do_sample,
        show_default=True,
        help="When sampling: whether the draft model draws too, or takes its most likely tokens.",
    ),
    _number("prompt_lookup_num_tokens", int, "Most draft tokens per match of prompt-lookup."),
    _number("max_matching_ngram_size", int, "Longest n-gram that prompt-lookup looks for. [3]"),
    click.option(
        "--reference-texts",
        type=_text,
        multiple=True,
        metavar="FILE",
        help="Text that the output may quote, in which suffix looks too; may be given several "
        "times.",
    ),
)
"""Those that concern draft tokens."""

GENERATION_OPTIONS = (
    _number("min_new_tokens", int, "Tokens before which the text cannot end by itself."),
    click.option(
        "--stop",
        "stop_strings",
        type=_stop,
        multiple=True,
        metavar="S",
        help="Text that ends the output; may be given several times. Escapes: "
        r"\n \t \r \\ \xNN \uNNNN.",
    ),
    click.option(
        "--eos-token-id",
        type=int,
        multiple=True,
        metavar="ID",
        help="Token that ends the text; may be given several times. [the model's]",
    ),
    click.option("--ignore-eos", is_flag=True, help="Go on after an end-of-sequence token."),
    click.option(
        "--do-sample/--no-do-sample",
        default=None,
        help="Draw tokens, or take the most likely ones. [draw if one of the next five is given]",
    ),
    _number("temperature", float, "Logits are divided by it; 0 is greedy decoding."),
    _number("top_k", int, "Keep the N most likely tokens; 0 keeps all."),
    _number("top_p", float, "Keep the fewest most likely tokens whose mass reaches X."),
    _number("min_p", float, "Drop tokens less likely than this part of the most likely one."),
    _number("typical_p", float, "Keep the tokens of most typical surprise whose mass reaches X."),
    seed_option(),
    _number("repetition_penalty", float, "Above 1: tokens in prompt and output get less likely."),
    _number("presence_penalty", float, "Subtracted from the logits of tokens in the output."),
    _number("frequency_penalty", float, "The same, once for each time that a token occurs."),
    click.option(
        "--logit-bias",
        type=_bias,
        multiple=True,
        metavar="ID=BIAS",
        help="Added to a token's logit, -inf forbids it; may be given several times.",
    ),
    click.option(
        "--bad-words-ids",
        type=_ids,
        multiple=True,
        metavar="ID,ID,...",
        help="Token sequence that must not be generated; may be given several times.",
    ),
    click.option(
        "--suppress-tokens",
        type=_ids,
        default="",
        metavar="ID,ID,...",
        help="Tokens that must not be generated.",
    ),
    _number("no_repeat_ngram_size", int, "Length of n-grams that must not repeat; 0 allows all."),
    _number(
        "encoder_no_repeat_ngram_size",
        int,
        "Length of n-grams of the prompt that must not occur in the output; 0 allows all.",
    ),
    _number(
        "forced_bos_token_id",
        int,
        "Token that the output of an encoder-decoder model begins with. [the model's]",
    ),
    click.option(
        "--tgt-lang",
        metavar="LANG",
        help="Language to translate into, as the tokenizer names it, such as fra_Latn.",
    ),
    click.option(
        "--src-lang",
        metavar="LANG",
        help="Language of the text that is translated, named in the same way. [the tokenizer's]",
    ),
    *SPECULATION_OPTIONS,
    click.option(
        "--chat-template-kwargs",
        type=_object,
        metavar="JSON",
        help="What else the chat template reads, such as '{\"enable_thinking\": false}'.",
    ),
    click.option(
        "--tools",
        type=_schemas,
        metavar="FILE",
        help="Functions that the model may call: a JSON file with a list of their schemas.",
    ),
)

TEMPLATE_OPTION = click.option(
    "--chat-template/--no-chat-template",
    "apply_chat_template",
    default=GenerationOptions.apply_chat_template,
    show_default=True,
    help="Put the prompt into the model's chat template, where it has one.",
)
"""For commands whose prompt may be no conversation."""

CACHE_PROMPT_OPTION = click.option(
    "--cache-prompt/--no-cache-prompt",
    default=GenerationOptions.cache_prompt,
    show_default=True,
    help="Read only what the KV caches do not hold already of the prompt.",
)
"""For commands that generate more than once on a pipeline."""
