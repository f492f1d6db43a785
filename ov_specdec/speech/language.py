"""The language of a recording: given by the user, or detected."""

from collections.abc import Mapping

from ov_specdec.checks import suggest
from ov_specdec.errors import Option, OptionError
from ov_specdec.speech.settings import WhisperSettings


def language_id(language: str, settings: WhisperSettings) -> int | None:
    """The id of a language, named "en", "English" or "<|en|>"; None for an English-only model.

    Raises `OptionError` for one that the model does not know.
    """
    if not isinstance(language, str):
        raise OptionError(Option("language", language), " must be a language, such as 'en'")
    name = language.strip().lower()
    if not settings.is_multilingual:
        if name not in ("en", "english", "<|en|>"):
            raise OptionError(
                Option("language", language), " is not known to this model: it has 'en' only"
            )
        return None
    for token in (name, f"<|{name}|>"):
        if token in settings.lang_to_id:
            return settings.lang_to_id[token]
    names = _names()
    token = f"<|{names.get(name)}|>"
    if token not in settings.lang_to_id:
        codes = [code_of(token) for token in settings.lang_to_id]
        known = [*codes, *(full for full, code in names.items() if code in codes)]
        hint = suggest(name, known, f"there are: {', '.join(sorted(codes))}", most=1)
        raise OptionError(Option("language", language), f" is not known to this model: {hint}")
    return settings.lang_to_id[token]


def language_code(token_id: int | None, settings: WhisperSettings) -> str:
    """The code of a language, such as "en", by its id."""
    if token_id is None:
        return "en"
    codes = {token: code_of(text) for text, token in settings.lang_to_id.items()}
    return codes[token_id]


def code_of(token: str) -> str:
    """The code in a language's token: "en" of "<|en|>"."""
    return token.strip("<|>")


def _names() -> Mapping[str, str]:
    """Codes by the English names of languages."""
    # Imports torch if that is installed, so only if the language is not given as a code.
    from transformers.models.whisper.tokenization_whisper import TO_LANGUAGE_CODE

    names: Mapping[str, str] = TO_LANGUAGE_CODE
    return names
