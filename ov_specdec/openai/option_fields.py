"""Options of generations and transcriptions as fields of bodies."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, Field, create_model
from pydantic_core import PydanticCustomError

from ov_specdec.openai.body import Body, NeutralValues
from ov_specdec.openai.errors import said, show
from ov_specdec.options.generation import MAX_REQUESTED_LENGTH, GenerationOptions
from ov_specdec.options.model import Endpoint, Options, TokenId, request_fields

B = TypeVar("B", bound=Body)

MAX_SEED = 2**63

MAX_ITEMS = 1024
"""Maximum length of a list: every choice of a request makes a processor of it."""

MAX_SALT = 256
"""Maximum characters of a salt: what is cached is found by it, and keeps it."""


def _read_bias(bias: dict[str, float]) -> dict[int, float]:
    for token in bias:
        # Python refuses to parse numbers of thousands of digits.
        if not token.isdecimal() or len(token) > 18:
            reason = {"token": show(token)}
            raise PydanticCustomError("ids", "holds {token}: keys must be token ids", reason)
    return {int(token): value for token, value in bias.items()}


IdList = Annotated[list[TokenId], Field(max_length=MAX_ITEMS, fail_fast=True)]
Word = Annotated[list[TokenId], Field(max_length=32, fail_fast=True)]  # or a phrase
StopString = Annotated[str, Field(min_length=1, max_length=256)]
# A row after a repetitive text costs one comparison of all of it for each token of an n-gram.
NgramSize = Annotated[int, Field(ge=0, le=256)]

FIELD_TYPES: Mapping[str, Any] = {
    "bad_words_ids": Annotated[list[Word], Field(max_length=MAX_ITEMS, fail_fast=True)],
    "cache_salt": Annotated[
        Annotated[str, Field(max_length=MAX_SALT)],
        said(f"a text of up to {MAX_SALT} characters"),
    ],
    "logit_bias": Annotated[
        dict[str, Annotated[float, Field(ge=-100, le=100)]],  # as in OpenAI's reference
        # To ban a script, or all spellings of some words, takes thousands.
        Field(max_length=16_384, fail_fast=True),
        AfterValidator(_read_bias),
    ],
    "num_assistant_tokens": Annotated[
        Annotated[int, Field(ge=0, le=MAX_REQUESTED_LENGTH)] | Literal["auto"],
        said(f"a whole number from 0 to {MAX_REQUESTED_LENGTH}, or auto"),
    ],
    "no_repeat_ngram_size": NgramSize,
    "encoder_no_repeat_ngram_size": NgramSize,
    # Negative values are valid there, but not here.
    "seed": Annotated[
        int,
        Field(ge=-MAX_SEED, lt=MAX_SEED),
        AfterValidator(lambda seed: seed % (2 * MAX_SEED)),
    ],
    "stop_strings": Annotated[
        StopString | Annotated[list[StopString], Field(max_length=16)],
        said("a text or up to 16, none empty or longer than 256 characters"),
    ],
    "stop_token_ids": IdList,
    "suppress_tokens": IdList,
    "tool_choice": Annotated[
        Literal["none", "auto", "required"] | dict[str, Any],
        said("none, auto, required, or a tool by type and name"),
    ],
}
"""Types of options with other bounds in requests, or whose form in OpenAI or vLLM differs."""


def with_options(
    options: type[Options], names: Iterable[str], neutral: NeutralValues = MappingProxyType({})
) -> Callable[[type[B]], type[B]]:
    """Adds these options as fields to a body; null counts as missing."""

    def decorate(body: type[B]) -> type[B]:
        aliases, taken = request_fields(options), {}
        for name in names:
            known = options.model_fields[name]
            kind: Any = FIELD_TYPES.get(name) or known.rebuild_annotation()
            field = Field(None, alias=aliases[name], description=known.description)
            taken[name] = kind | None, field
        made = create_model(
            body.__name__,
            __base__=body,
            __module__=body.__module__,
            __doc__=body.__doc__,
            **taken,  # type: ignore[call-overload]  # it declares them as Any
        )
        made.option_names = (*body.option_names, *taken)
        made.neutral_values = {**body.neutral_values, **neutral}
        return made  # type: ignore[no-any-return]

    return decorate


def with_options_of(endpoint: Endpoint) -> Callable[[type[B]], type[B]]:
    """Adds the options of a generation that an endpoint takes; it refuses those of others."""
    own = request_fields(GenerationOptions, endpoint)
    defaults = {name: field.default for name, field in GenerationOptions.model_fields.items()}
    others = {
        alias: () if defaults[name] is None else (defaults[name],)
        for name, alias in request_fields(GenerationOptions).items()
        if name not in own
    }
    return with_options(GenerationOptions, own, others)
