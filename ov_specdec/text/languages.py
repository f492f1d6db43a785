"""Languages of translation models, which are special tokens of their tokenizers."""

from collections.abc import Mapping
from typing import Any

from ov_specdec.checks import suggest
from ov_specdec.errors import Option, OptionError


def find_language(option: str, name: str, spec: Mapping[str, Any]) -> int:
    """The id of a language's token; `OptionError` where the tokenizer does not have it.

    option: the option that names it. spec: the content of tokenizer.json.
    """
    added = {token["content"]: token["id"] for token in spec.get("added_tokens", ())}
    # Marks, such as "</s>" and "[MASK]", have brackets; languages are called "fr_XX" or "__fr__".
    added = {content: token for content, token in added.items() if content[:1] not in ("<", "[")}
    if name not in added:
        hint = suggest(name, added, f"there are: {', '.join(added)[:200] or 'none'}")
        raise OptionError(Option(option, name), f" is not known to the model's tokenizer: {hint}")
    token: int = added[name]
    return token
