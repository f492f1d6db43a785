"""`Options`, the base of all options: pydantic models that raise `OptionError`."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, ClassVar, TypeVar, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    create_model,
)
from pydantic.fields import FieldInfo

from ov_specdec.errors import Option, OptionError, suggest
from ov_specdec.options.foreign_names import HINTS

T = TypeVar("T")


def as_plain(value: Any) -> Any:
    """A value with numpy's numbers and arrays replaced by Python's, at any depth."""
    if hasattr(value, "tolist"):  # of arrays and scalars; numpy itself takes long to import
        return value.tolist()
    if isinstance(value, dict):
        return {as_plain(key): as_plain(each) for key, each in value.items()}
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(as_plain(each) for each in value)
    if isinstance(value, Iterator):  # readable only once
        return tuple(map(as_plain, value))
    return value


def as_tuple(value: Any) -> Any:
    """One value or several, as a tuple; None as it is."""
    if value is None:
        return None
    several = hasattr(value, "__iter__") and not isinstance(value, str)
    return tuple(value) if several else (value,)


Text = Annotated[str, Field(max_length=2**31)]
"""A text that tokenizers take: pydantic refuses halves of surrogate pairs only in bounded ones."""

TokenId = Annotated[int, Field(ge=0)]

Several = Annotated[Sequence[T], BeforeValidator(as_tuple)]
"""One value or several, as a tuple."""


@dataclass(frozen=True)
class Display:
    """How an option appears on the command line, in requests and in documents.

    more: a supplement for the documents of the Python interface. unset: description of the default.
    metavar: placeholder of a value; "": by its type. flag: its name on the command line; "": its
    own; None: it has none. field: the same for requests. expects: its values in words; "": by its
    type. group: title of the group that begins here.
    """

    more: str = ""
    unset: str = ""
    metavar: str = ""
    flag: str | None = ""
    field: str | None = ""
    expects: str = ""
    group: str = ""


def option(
    default: Any,
    description: str,
    *,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    is_secret: bool = False,
    **display: Any,
) -> Any:
    """An option as the default of a field or parameter; `...` if it has to be given."""
    extra: Any = {"display": Display(**display)}
    shown: Any = {"repr": not is_secret, "json_schema_extra": extra}
    return Field(default, description=description, ge=ge, gt=gt, le=le, **shown)


WORDS = {
    "boolean": "True or False",
    "integer": "a whole number",
    "number": "a number",
    "string": "a text",
}
BOUNDS = {
    "": "",
    "minimum": " of at least {minimum}",
    "minimum maximum": " from {minimum} to {maximum}",
    "exclusiveMinimum": " above {exclusiveMinimum}",
    "exclusiveMinimum maximum": " above {exclusiveMinimum}, up to {maximum}",
    "maximum": " of at most {maximum}",
    "minLength": " that is not empty",
}
"""Types, and the bounds of a number or text, in words, by their names in JSON schemas."""


def display_of(field: FieldInfo) -> Display:
    """How an option appears."""
    extra: Any = field.json_schema_extra or {}
    return extra.get("display", Display())  # type: ignore[no-any-return]


class Options(BaseModel):
    """Named options, checked when made: `OptionError` names an invalid value and its remedy.

    Numbers and lists may be numpy's; they become Python's. hints: what to give for unknown ones.
    """

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        arbitrary_types_allowed=True,
        protected_namespaces=(),
    )
    noun: ClassVar[str] = "option"
    hints: ClassVar[Mapping[str, str]] = HINTS

    def __init__(self, **given: Any) -> None:
        require_known(given, type(self).model_fields, self.noun, self.hints)
        try:
            super().__init__(**{name: as_plain(value) for name, value in given.items()})
        except ValidationError as error:
            raise _explained(error, type(self).model_fields) from error


def require_known(
    given: Mapping[str, object],
    known: Collection[str],
    kind: str,
    hints: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Refuse an unknown name.

    kind: of the name. hints: what to give instead, by unknown names: a name, or a sentence.
    """
    for name, value in given.items():
        if name not in known:
            meant = hints.get(name, name)
            meant = hints.get(meant, meant)  # another name may be unknown here too
            otherwise = f"there are: {', '.join(known)}"
            hint = meant if " " in meant else suggest(meant, known, otherwise, most=1)
            # Of other programs, as some of their values are accepted; more names might be secrets.
            shown = Option(name, value) if name in hints else repr(name)
            raise OptionError(f"unknown {kind} {shown}: {hint}")


def require_utf8(what: str, text: str, **options: object) -> None:
    """Refuse a text with lone surrogates, which no tokenizer takes. what: may name `options`."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        problem = f"{what} is not valid text at character {error.start} ({error.reason})"
        raise OptionError(f"{problem}: give it as UTF-8", **options) from error


def by_group(fields: Mapping[str, FieldInfo]) -> dict[str, list[str]]:
    """The names of options that are shown, by group."""
    groups: dict[str, list[str]] = {}
    group = ""
    for name, field in fields.items():
        group = display_of(field).group or group
        if field.description:
            groups.setdefault(group, []).append(name)
    return groups


def options_of_function(function: Callable[..., Any]) -> type[Options]:
    """The keyword parameters of a function whose defaults are made by `option`."""
    fields: dict[str, Any] = {
        name: (parameter.annotation, parameter.default)
        for name, parameter in signature(function).parameters.items()
        if isinstance(parameter.default, FieldInfo)
    }
    return create_model(function.__name__, __base__=Options, **fields)


def require(name: str, value: object, kind: Any, expects: str = "", **bounds: Any) -> None:
    """Refuse a value that is not of this type and within these bounds: a single option."""
    fields: dict[str, Any] = {name: (kind, option(..., "", expects=expects, **bounds))}
    create_model("Value", __base__=Options, **fields)(**{name: value})


def _explained(error: ValidationError, fields: Mapping[str, FieldInfo]) -> OptionError:
    """The first invalid option, with the deepest value that is wrong."""
    errors = error.errors(include_url=False)
    where = errors[0]["loc"][:1]
    found = max((each for each in errors if each["loc"][:1] == where), key=lambda e: len(e["loc"]))
    reason = found.get("ctx", {}).get("error")
    if isinstance(reason, OptionError):
        return reason
    name = str(where[0])
    if found["type"] == "string_unicode":
        return OptionError("{option} is not valid text: give it as UTF-8", option=Option(name))
    named = Option(name, found["input"]) if fields[name].repr else Option(name)
    return OptionError(f"{{option}} must be {in_words(fields[name])}", option=named)


def request_fields(options: type[Options]) -> dict[str, str]:
    """The fields of requests by their options, as far as they have one."""
    shown = {name: display_of(field).field for name, field in options.model_fields.items()}
    return {name: field or name for name, field in shown.items() if field is not None}


def kinds_of(kind: Any) -> list[Any]:
    """The types of which a value may be one, without None and constraints."""
    if get_origin(kind) is Annotated:
        return kinds_of(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return [each for part in get_args(kind) for each in kinds_of(part)]
    return [] if kind is NoneType else [kind]


def in_words(field: FieldInfo) -> str:
    """The values of an option, such as "a whole number from 0 to 256, or auto"."""
    expects = display_of(field).expects
    return expects or _in_words(TypeAdapter(field.rebuild_annotation()).json_schema())


def _in_words(schema: Mapping[str, Any]) -> str:
    if cases := schema.get("anyOf"):
        return ", or ".join(_in_words(case) for case in cases if case != {"type": "null"})
    if values := schema.get("enum", [schema["const"]] if "const" in schema else []):
        return f"{'one of ' * (len(values) > 1)}{', '.join(values)}"
    if items := schema.get("items"):
        return f"{_in_words(items)}, or several"
    names = ("minimum", "exclusiveMinimum", "maximum", "minLength")
    bounds = {name: f"{schema[name]:.15g}" for name in names if name in schema}
    return WORDS.get(schema["type"], "a value of another type") + BOUNDS[" ".join(bounds)].format(
        **bounds
    )
