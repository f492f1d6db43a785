"""`Body`, the base of the bodies of requests; options as their fields; and which are refused."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic_core import PydanticCustomError

from ov_specdec.errors import suggest
from ov_specdec.openai.errors import FIELDS, explain, invalid, said, show
from ov_specdec.options.generation import MAX_REQUESTED_LENGTH, GenerationOptions
from ov_specdec.options.model import Endpoint, Options, TokenId, request_fields

log = logging.getLogger("ov_specdec.openai")

MAX_LOGGED = 1000
"""Maximum logged names to remember: requests may contain any number of them."""

MAX_NAME = 80
"""Maximum characters of such a name in the log."""

MAX_VALUES = 131_072
"""Maximum values in a body: as objects they take up to a hundred times their length in JSON."""

MAX_DEPTH = 100
"""Maximum nesting of a body: Python's recursion ends at 1,000, and some work takes 2 per level."""

MAX_SEED = 2**63

MAX_ITEMS = 1024
"""Maximum length of a list: every choice of a request makes a processor of it."""

MAX_SALT = 256
"""Maximum characters of a salt: what is cached is found by it, and keeps it."""

NEWER_NAMES = {
    **{f"guided_{name}": f"give structured_outputs.{name}" for name in ("choice", "json", "regex")},
    **dict.fromkeys(("grammar", "guided_grammar"), "give structured_outputs.grammar, in Lark"),
    "function_call": "give tool_choice",
    "functions": "give tools",
    "json_schema": "give response_format, or structured_outputs.json",
    "response_format": "give text.format",
    "response_format.schema": "give response_format.json_schema.schema, with the type json_schema",
    "text.format.json_schema": "give text.format.schema",
}
"""What to give instead of older fields, and of fields of llama.cpp and other endpoints."""

NeutralValues = Mapping[str, Sequence[Any]]
"""The only values that are taken of each field: those that change nothing. () refuses all."""

B = TypeVar("B", bound="Body")


class Loose(BaseModel):
    """An object that may have more fields than those that are used."""

    model_config = ConfigDict(strict=True, extra="allow")


@dataclass
class UnknownFields:
    """Those of requests. strict: whether they are refused; else each is logged once."""

    strict: bool = False
    _logged: set[str] = field(default_factory=set)

    def check(self, name: str, value: object, known: Iterable[str]) -> None:
        """Log an unknown field, or refuse it; the hint is the field of the option of that name."""
        meant = partial(suggest, FIELDS.get(name, name), known, most=1, cutoff=0.8)
        if self.strict:
            hint = meant(otherwise="leave it out")
            message = f"{name}={show(value)} is not supported: {hint}"
            raise invalid(name, message, "unknown_parameter")
        shown = name[:MAX_NAME]
        if shown not in self._logged and len(self._logged) < MAX_LOGGED:
            self._logged.add(shown)
            log.warning(
                "%r is ignored in requests: %s", shown, meant(otherwise="it is not a known field")
            )


class Body(BaseModel):
    """A JSON object. A null field counts as missing.

    option_names: its fields that are generation options, by the names of the options.
    neutral_values: of fields that are refused otherwise.
    """

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    option_names: ClassVar[tuple[str, ...]] = ()
    neutral_values: ClassVar[NeutralValues] = {}

    @property
    def given_options(self) -> dict[str, Any]:
        """The given options, by name."""
        given = {name: getattr(self, name) for name in self.option_names}
        return {name: value for name, value in given.items() if value is not None}

    def check(self, unknown: UnknownFields, where: str = "") -> None:
        """Refuse what cannot be honoured, by its path; have unknown fields logged or refused."""
        fields = type(self).model_fields
        known = {*self.neutral_values, *(each.alias or name for name, each in fields.items())}
        given = {k: v for k, v in (self.model_extra or {}).items() if v is not None}
        for name, value in given.items():
            neutral = self.neutral_values.get(name)
            if neutral is None:
                unknown.check(where + name, value, known)
            elif not any(value == each and type(value) is type(each) for each in neutral):
                taken = " or ".join(map(show, neutral))
                remedy = f"only {taken} is taken" if taken else "leave it out"
                path = where + name.removesuffix("[]")
                remedy = NEWER_NAMES.get(path, remedy)
                message = f"{path}={show(value)} is not supported: {remedy}"
                raise invalid(path, message, "unsupported_value")
        for name in fields:
            if isinstance(own := getattr(self, name), Body):
                own.check(unknown, f"{where}{name}.")


def read(kind: type[B], content: object, unknown: UnknownFields | None = None) -> B:
    """Validate a body of this kind; `ApiError` names an invalid field by its JSON path."""
    check_size(content)
    if not isinstance(content, Mapping):
        raise invalid(None, f"the body is {show(content)}: it must be a JSON object")
    try:
        body = kind.model_validate(dict(content))
    except ValidationError as error:
        raise invalid(*explain(error)[:2]) from error
    body.check(unknown or UnknownFields())
    return body


def check_size(content: object) -> None:
    """Refuse a body of too many values, or one that is nested too deeply."""
    level: list[Any] = [[content]]
    depth = num_values = -1  # without the list around it
    while level:
        depth, num_values = depth + 1, num_values + sum(map(len, level))
        if depth > MAX_DEPTH:
            raise invalid(None, f"the body is nested more than {MAX_DEPTH} deep: nest it less")
        if num_values > MAX_VALUES:
            raise invalid(None, f"the body has more than {MAX_VALUES} values: send fewer")
        values = (each.values() if isinstance(each, dict) else each for each in level)
        level = [v for several in values for v in several if isinstance(v, dict | list)]


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
            described = Field(None, alias=aliases[name], description=known.description)
            taken[name] = kind | None, described
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
