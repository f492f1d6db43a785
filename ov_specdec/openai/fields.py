"""Types of fields: of described options, and of unsupported fields."""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    ValidationError,
    WrapValidator,
    create_model,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from ov_specdec.description import Described, Endpoint, describe
from ov_specdec.openai.body import B
from ov_specdec.openai.errors import show
from ov_specdec.options import MAX_REQUESTED_LENGTH, GenerationOptions

MAX_SEED = 2**63

MAX_ID_DIGITS = 18
"""Maximum digits of a token id: Python refuses to parse numbers of thousands of digits."""

MAX_ITEMS = 1024
"""Maximum length of a list: every choice of a request makes a processor of it."""

MAX_WORD = 32
"""Maximum length of a list within a list: bad words are words and phrases."""

MAX_BIASES = 16_384
"""Maximum number of logit biases: to ban a script, or all spellings of some words, takes thousands.
Every choice of a request keeps them as arrays."""

MAX_SALT = 256
"""Maximum characters of a salt: what is cached is found by it, and keeps it."""

MAX_NGRAM = 256
"""Maximum length of banned n-grams: a row after a repetitive text costs one comparison of the whole
text for each token of an n-gram."""

Object = dict[str, Any]
Positive = Annotated[int, Field(ge=1)]


class Only:
    """The values of an unsupported field that have no effect; others are refused."""

    def __init__(self, *values: Any) -> None:
        self._values = values

    def check(self, value: Any) -> Any:
        """The value, if it has no effect."""
        for allowed in (None, *self._values):
            if value == allowed and type(value) is type(allowed):
                return value
        taken = " or ".join(map(show, self._values))
        remedy = f"only {taken} is taken" if taken else "leave it out"
        raise PydanticCustomError(
            "unsupported_value", "is not supported: {remedy}", {"remedy": remedy}
        )

    def __get_pydantic_core_schema__(self, _: Any, __: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.check)

    def __get_pydantic_json_schema__(self, _: CoreSchema, __: Any) -> dict[str, Any]:
        return {"enum": [*self._values, None]}


def said(what: str) -> WrapValidator:
    """Gives an invalid value of a union one error, instead of one for each type.

    what: "a text or several", for example.
    """

    def check(value: Any, validate: Callable[[Any], Any]) -> Any:
        try:
            return validate(value)
        except ValidationError as error:
            raise PydanticCustomError("kind", "must be {what}", {"what": what}) from error

    return WrapValidator(check)


def values(are: Callable[[Any], bool], what: str) -> BeforeValidator:
    """Checks all values of a mapping. what: their required type, for the message.

    pydantic's own check collects all errors: a body of 4 MB could take a gigabyte.
    """

    def check(given: Any) -> Any:
        for key, value in given.items() if isinstance(given, dict) else ():
            if not are(value):
                reason = {"key": show(key), "value": show(value), "what": what}
                message = "holds {value} at {key}: it must be {what}"
                raise PydanticCustomError("values", message, reason)
        return given

    return BeforeValidator(check)


def is_bias(value: Any) -> bool:
    """Whether a value is a valid logit bias, as in OpenAI's reference."""
    return type(value) in (int, float) and -100 <= value <= 100


def _read_bias(bias: dict[str, float]) -> dict[int, float]:
    for token in bias:
        if not token.isdecimal() or len(token) > MAX_ID_DIGITS:
            reason = {"token": show(token)}
            raise PydanticCustomError("ids", "holds {token}: keys must be token ids", reason)
    return {int(token): value for token, value in bias.items()}


StopString = Annotated[str, Field(min_length=1, max_length=256)]
NgramSize = Annotated[int, Field(ge=0, le=MAX_NGRAM)]

FORMS: Mapping[str, Any] = {
    "cache_salt": Annotated[
        Annotated[str, Field(max_length=MAX_SALT)],
        said(f"a text of up to {MAX_SALT} characters"),
    ],
    "logit_bias": Annotated[
        dict[str, float],
        Field(max_length=MAX_BIASES),
        values(is_bias, "a number from -100 to 100"),
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
}
"""Types of options whose form in OpenAI or vLLM differs from transformers."""


def options_of(endpoint: Endpoint, options: Any = GenerationOptions) -> list[Described]:
    """The options that an endpoint takes as fields."""
    described = describe(options).values()
    return [each for each in described if each.field and endpoint in each.about.endpoints]


def others_of(endpoint: Endpoint) -> list[Described]:
    """The options that only other endpoints take."""
    described = describe(GenerationOptions).values()
    return [each for each in described if each.field and endpoint not in each.about.endpoints]


def with_options(
    described: Sequence[Described], refused: Sequence[Described] = ()
) -> Callable[[type[B]], type[B]]:
    """Adds the fields of these options to a body. refused: those that take their default only."""

    def decorate(body: type[B]) -> type[B]:
        fields = {each.name: _field_of(each) for each in described}
        others = {each.name: _refused(each) for each in refused}
        made = create_model(
            body.__name__,
            __base__=body,
            __module__=body.__module__,
            __doc__=body.__doc__,
            **fields,  # type: ignore[call-overload]  # it declares them as Any
            **others,
        )
        made.option_names = (*body.option_names, *fields)
        return made  # type: ignore[no-any-return]

    return decorate


def _field_of(each: Described) -> tuple[Any, Any]:
    """Type and default of the field of an option; null counts as missing."""
    kind = FORMS.get(each.name) or reduce(or_, [_bounded(kind, each) for kind in each.kinds])
    about = Field(None, alias=each.field, description=each.about.help)
    return kind | None, about


def _refused(each: Described) -> tuple[Any, Any]:
    """Type and default of a field that has to be left out."""
    neutral = Only() if each.default is None else Only(each.default)
    return Annotated[Any, neutral], Field(None, alias=each.field)


def _bounded(kind: Any, each: Described, max_length: int = MAX_ITEMS) -> Any:
    """A type with the bounds of an option, if it holds numbers. max_length: of a list."""
    if get_origin(kind) is Sequence:
        item = _bounded(get_args(kind)[0], each, MAX_WORD)
        return Annotated[list[item], Field(max_length=max_length, fail_fast=True)]  # type: ignore[valid-type]
    if get_origin(kind) is Mapping:
        key, item = get_args(kind)
        # Keys in JSON are texts.
        return dict[Annotated[key, Field(strict=False)], item]  # type: ignore[valid-type]
    if kind not in (int, float):
        return kind
    return Annotated[kind, Field(ge=each.about.low, gt=each.about.above, le=each.about.high)]
