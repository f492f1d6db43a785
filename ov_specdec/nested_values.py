"""Checks of options with nested values: mappings, lists of lists, functions."""

from collections.abc import Mapping, Sequence

from ov_specdec.checks import require_int, require_number
from ov_specdec.errors import Option, OptionError, shorten

NOT_FOR_TEMPLATES = (
    *("messages", "conversations", "chat_template", "tools", "add_generation_prompt"),
    *("continue_final_message", "return_assistant_tokens_mask"),
)
"""Arguments of a chat template that transformers sets from other options."""


def require_biases(name: str, value: object) -> None:
    """Refuse a value that does not map token ids to numbers or -inf."""
    if not isinstance(value, Mapping):
        raise OptionError(Option(name, value), " must map token ids to biases")
    for token, bias in value.items():
        require_int(name, token, low=0)
        if bias != float("-inf"):
            require_number(name, bias)


def require_words(name: str, value: object) -> None:
    """Refuse a value that is no list of sequences of ids, none empty."""
    for word in value if isinstance(value, Sequence) else [value]:
        if not isinstance(word, Sequence) or isinstance(word, str) or not word:
            raise OptionError(Option(name, word), " must be sequences of ids, none empty")
        for token in word:
            require_int(name, token, low=0)


def require_functions(name: str, value: object) -> None:
    """Refuse a value that is no list of functions."""
    if not isinstance(value, Sequence) or not all(map(callable, value)):
        raise OptionError(Option(name, value), " must be a list of functions")


def require_tools(name: str, value: object) -> None:
    """Refuse a value that is no list of JSON schemas or functions."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise OptionError(Option(name, value), " must be a list")
    for index, tool in enumerate(value):
        if not isinstance(tool, Mapping) and not callable(tool):
            raise OptionError(
                Option(name), f"[{index}]={shorten(tool)} must be a JSON schema or a function"
            )


def require_template_arguments(name: str, value: object) -> None:
    """Refuse a value that does not map names to values, or that sets another option."""
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for each in value):
        raise OptionError(Option(name, value), " must map names to values")
    if taken := [each for each in value if each in NOT_FOR_TEMPLATES]:
        raise OptionError(
            Option(name), f" contains '{taken[0]}', which another option sets: leave it out there"
        )
