"""Descriptions of options: bounds, help, and names on the command line and in requests."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from inspect import Parameter, signature
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from ov_specdec.checks import (
    require_bool,
    require_choice,
    require_int,
    require_number,
    require_text,
    require_utf8,
)
from ov_specdec.errors import Option, OptionError

Endpoint = Literal["chat", "completions", "responses"]
ENDPOINTS: tuple[Endpoint, ...] = get_args(Endpoint)


@dataclass(frozen=True)
class About:
    """The description of an option in its annotation: `Annotated[int, About("...")]`.

    help: its help, for the command line, requests and documents. more: a supplement for the
    documents of the Python interface. low, above, high: bounds of a number, or of each number of a
    list; low is also the minimum length of a text. unit: of a number. unset: description of the
    default. metavar: placeholder of a value; "": by its type. flag: its name on the command line;
    "": its own; None: it has none. field: the same for requests. endpoints: those that take it.
    check: refuses other values, by the option's name. group: title of the group that begins here.
    """

    help: str
    more: str = ""
    low: float | None = None
    above: float | None = None
    high: float | None = None
    unit: str = ""
    unset: str = ""
    metavar: str = ""
    flag: str | None = ""
    field: str | None = ""
    endpoints: tuple[Endpoint, ...] = ENDPOINTS
    check: Callable[[str, Any], None] | None = None
    group: str = ""


@dataclass(frozen=True)
class Described:
    """An option with its description.

    kind: its type. default: its value if not given; `Parameter.empty` if it has to be given.
    """

    name: str
    kind: Any
    default: Any
    about: About

    @cached_property
    def kinds(self) -> tuple[Any, ...]:
        """The members of its union type, without None."""
        return tuple(kind for kind in _alternatives(self.kind) if kind is not NoneType)

    @property
    def is_required(self) -> bool:
        """Whether it has to be given."""
        return self.default is Parameter.empty

    @cached_property
    def takes_none(self) -> bool:
        """Whether None is one of its values."""
        return NoneType in _alternatives(self.kind)

    @cached_property
    def origins(self) -> set[Any]:
        """The generic types among `kinds`, such as Sequence."""
        return {get_origin(kind) for kind in self.kinds}

    @cached_property
    def choices(self) -> tuple[Any, ...]:
        """The allowed values of its literal types."""
        literals = [kind for kind in self.kinds if get_origin(kind) is Literal]
        return tuple(choice for literal in literals for choice in get_args(literal))

    @cached_property
    def item(self) -> Any:
        """The type of the items of a list; else None."""
        found = [get_args(kind)[0] for kind in self.kinds if get_origin(kind) is Sequence]
        return found[0] if found else None

    @property
    def field(self) -> str | None:
        """Its name in requests; None if it is not a field."""
        return None if self.about.field is None else self.about.field or self.name

    @property
    def flag(self) -> str | None:
        """Its name on the command line; None if it has none."""
        if self.about.flag is None:
            return None
        return "--" + (self.about.flag or self.name).replace("_", "-")

    def check(self, value: object) -> None:
        """Refuse a value of another type, out of bounds, or that its own check refuses."""
        if value is None and self.takes_none:
            return
        if self.about.check is not None:
            self.about.check(self.name, value)
        elif self.item in (int, float, str):
            for each in as_tuple(value):
                self._check_one(self.item, each)
        elif self.choices and value not in self.choices and len(self.kinds) == 1:
            require_choice(self.name, value, self.choices)
        elif value not in self.choices:
            try:
                self._check_one(self.kinds[0], value)
            except OptionError as error:
                if not self.choices:
                    raise
                others = "".join(f", or {choice}" for choice in self.choices)
                raise OptionError(Option(self.name, value), f" {error.reason}{others}") from error

    def _check_one(self, kind: Any, value: object) -> None:
        about = self.about
        if kind is bool:
            require_bool(self.name, value)
        elif kind is int:
            require_int(self.name, value, low=_whole(about.low), high=_whole(about.high))
        elif kind is float:
            bounds = {"low": about.low, "above": about.above, "high": about.high}
            require_number(self.name, value, **bounds)
        elif kind is str:
            require_text(self.name, value)
            require_utf8(Option(self.name), str(value))
            if about.low is not None and len(str(value)) < about.low:
                raise OptionError(Option(self.name, value), " must be texts, none empty")


def describe(options: Callable[..., Any]) -> dict[str, Described]:
    """The described options of a dataclass or function, by name."""
    return _describe(options)


@cache
def _describe(options: Callable[..., Any]) -> dict[str, Described]:
    found = {}
    for name, parameter in signature(options).parameters.items():
        if get_origin(parameter.annotation) is Annotated:
            kind, about = get_args(parameter.annotation)
            found[name] = Described(name, kind, parameter.default, about)
    return found


def by_group(options: Any) -> dict[str, list[str]]:
    """The names of all options by group."""
    groups: dict[str, list[str]] = {}
    for name, each in describe(options).items():
        if each.about.group:
            groups[each.about.group] = group = []
        group.append(name)
    return groups


def check_described(options: Any) -> None:
    """Check all described options of a dataclass."""
    for name, described in describe(type(options)).items():
        described.check(getattr(options, name))


def as_tuple(value: Any) -> tuple[Any, ...]:
    """One value or several, as a tuple."""
    several = hasattr(value, "__iter__") and not isinstance(value, str)
    return tuple(value) if several else (value,)


def _alternatives(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _whole(bound: float | None) -> int | None:
    return None if bound is None else int(bound)
