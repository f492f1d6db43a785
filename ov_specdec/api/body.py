"""Bodies of requests of all dialects: options as their fields; what is refused, what is read."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    WithJsonSchema,
    create_model,
)
from pydantic_core import PydanticCustomError

from ov_specdec.api.errors import FIELDS, explain, from_exception, invalid, said, show
from ov_specdec.errors import OptionError, suggest
from ov_specdec.options.generation import MAX_REQUESTED_LENGTH, GenerationOptions
from ov_specdec.options.model import Options, TokenId, request_fields
from ov_specdec.text.prompt import Prompt

log = logging.getLogger("ov_specdec.api")

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

FILE = "file"


class Refused(NamedTuple):
    """A field of which only neutral values are taken, and what to give instead."""

    remedy: str
    neutral: Sequence[Any] = ()


NeutralValues = Mapping[str, Sequence[Any] | Refused]
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

    def check(self, name: str, value: object, known: Iterable[str], meant: str = "") -> None:
        """Log an unknown field, or refuse it. meant: the field to look for among those known."""
        otherwise = "leave it out" if self.strict else "it is not a known field"
        hint = suggest(meant or name, known, otherwise, most=1, cutoff=0.8)
        if self.strict:
            message = f"{name}={show(value)} is not supported: {hint}"
            raise invalid(name, message, "unknown_parameter")
        shown = name[:MAX_NAME]
        if shown not in self._logged and len(self._logged) < MAX_LOGGED:
            self._logged.add(shown)
            log.warning("%r is ignored in requests: %s", shown, hint)

    def check_tools(self, types: Iterable[str]) -> None:
        """The same for tools of these types, which run elsewhere."""
        for each in types:
            self.check(f"tools.{each}", each, ())


class Body(BaseModel):
    """A JSON object. A null field counts as missing.

    method: of HTTP. option_names: its fields that are options, by the names of the options. fields:
    of all options, for errors. neutral_values: of fields that are refused otherwise. ignored:
    fields that change nothing, whatever they hold.
    """

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    method: ClassVar[str] = "POST"
    option_names: ClassVar[tuple[str, ...]] = ()
    fields: ClassVar[Mapping[str, str]] = FIELDS
    neutral_values: ClassVar[NeutralValues] = {}
    ignored: ClassVar[Sequence[str]] = ()

    @property
    def num_choices(self) -> int:
        """Number of generations."""
        return 1

    @property
    def names(self) -> Mapping[str, str]:
        """Fields by their options, of all that an error may name."""
        return self.fields

    @property
    def user_name(self) -> str | None:
        """Who asks, for the log."""
        return None

    @property
    def given_options(self) -> dict[str, Any]:
        """The given options, by name."""
        given = {name: getattr(self, name) for name in self.option_names}
        return {name: value for name, value in given.items() if value is not None}

    def check(self, unknown: UnknownFields, where: str = "") -> None:
        """Refuse what cannot be honoured, by its path; have unknown fields logged or refused."""
        fields = type(self).model_fields
        known = {*self.neutral_values, *(each.alias or name for name, each in fields.items())}
        for name, value in (self.model_extra or {}).items():
            if value is None or name in self.ignored:
                continue
            own = self.neutral_values.get(name)
            remedy, neutral = own if isinstance(own, Refused) else ("", own)
            if neutral is None:
                unknown.check(where + name, value, known, self.fields.get(where + name, ""))
            elif not any(value == each and type(value) is type(each) for each in neutral):
                taken = " or ".join(map(show, neutral))
                remedy = remedy or (f"only {taken} is taken" if taken else "leave it out")
                path = where + name.removesuffix("[]")
                message = f"{path}={show(value)} is not supported: {remedy}"
                raise invalid(path, message, "unsupported_value")
        for name, each in fields.items():
            if isinstance(own := getattr(self, name), Body):
                own.check(unknown, f"{where}{each.alias or name}.")


class Form(Body):
    """A form with a recording, in its field `FILE`."""

    model_config = ConfigDict(strict=False)  # its other fields are texts

    lists: ClassVar[tuple[str, ...]] = ()
    """Fields that are lists, also where their names do not end in []."""

    file: Annotated[Any, WithJsonSchema({"type": "string", "format": "binary"})]
    model: str | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments of `SpeechPipeline.stream`."""
        raise NotImplementedError

    @classmethod
    def collect(cls, given: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        """The fields of a form. given: texts and files of each, in order of arrival."""
        values: dict[str, Any] = {}
        for name, several in given.items():
            listed = f"{name}[]" if name in cls.lists else name
            if listed.endswith("[]"):
                values[listed] = list(several)
            elif len(several) > 1:
                raise invalid(name, f"{name} was given {len(several)} times: give it once")
            elif several[0]:  # an empty one counts as missing
                values[name] = several[0]
        if isinstance(values.get(FILE), str | None):  # a text would be read as a path
            raise invalid(FILE, "file is missing: send the recording as a file")
        return values


class GenerationBody(Body):
    """A request for texts. A dialect adds its fields, and says what they mean.

    conversation_field: where the messages are that need a chat template; "" if none do.
    """

    conversation_field: ClassVar[str] = "messages"

    model: str | None = Field(None, description="Name of the served model.")
    stream: bool | None = Field(None, description="Send events as the text comes.")

    _options: GenerationOptions = PrivateAttr()
    _prompts: tuple[Prompt, ...] = PrivateAttr()

    def check(self, unknown: UnknownFields, where: str = "") -> None:
        """See `Body`. Reads options and prompts too."""
        super().check(unknown, where)
        try:
            self._options, self._prompts = self.read_options(), self.read_prompts()
        except OptionError as error:
            raise from_exception(error, "", self.names) from error

    def read_options(self) -> GenerationOptions:
        """Of all choices; raises `ApiError` and `OptionError` for fields that contradict others."""
        raise NotImplementedError

    def read_prompts(self) -> tuple[Prompt, ...]:
        """Each a text, token ids or messages; raises `ApiError`."""
        raise NotImplementedError

    @property
    def options(self) -> GenerationOptions:
        """See `read_options`."""
        return self._options

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """See `read_prompts`."""
        return self._prompts

    @property
    def choices_per_prompt(self) -> int:
        """Number of choices for each prompt."""
        return 1

    @property
    def num_choices(self) -> int:
        """See `Body`."""
        return len(self.prompts) * self.choices_per_prompt

    @property
    def session(self) -> str | None:
        """A name of the conversation, by which a cluster chooses the replica; None: its begin."""
        return None


def read(kind: type[B], content: Any, unknown: UnknownFields | None = None) -> B:
    """Validate a body of this kind; `ApiError` names an invalid field by its JSON path."""
    if issubclass(kind, Form):
        content = kind.collect(content)
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
    options: type[Options],
    names: Iterable[str],
    neutral: NeutralValues = MappingProxyType({}),
    **fields: str,
) -> Callable[[type[B]], type[B]]:
    """Adds these options as fields to a body; null counts as missing.

    fields: names of fields by option, where a dialect has other ones.
    """

    def decorate(body: type[B]) -> type[B]:
        aliases, taken = {**request_fields(options), **fields}, {}
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
        made.fields = {**body.fields, **{name: aliases[name] for name in taken}}
        made.neutral_values = {**body.neutral_values, **neutral}
        return made  # type: ignore[no-any-return]

    return decorate
