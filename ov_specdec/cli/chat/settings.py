"""The generation options of a chat, by their names on the command line."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import click

from ov_specdec.checks import suggest
from ov_specdec.cli.terminal import flag_of
from ov_specdec.errors import OptionError
from ov_specdec.options import GenerationOptions


@dataclass(frozen=True)
class Settings:
    """The given options, by their Python names.

    options: of the command line. given: keyword arguments for `SpeculativePipeline.generate`.
    complete: adds defaults to these, and raises `OptionError` for invalid ones. defaults: given
    unless the user changes them.
    """

    options: Iterable[click.Option]
    given: Mapping[str, Any]
    complete: Callable[[Mapping[str, Any]], GenerationOptions]
    defaults: Mapping[str, Any]

    def with_value(self, name: str, text: str) -> "Settings":
        """With an option set; a repeatable option gets another value.

        name: as on the command line, with or without leading hyphens. Raises `OptionError` for an
        unknown option, an invalid value, and one that contradicts the others.
        """
        option = self._find(name)
        key = str(option.name)
        try:
            context = click.Context(click.Command("/set"))
            value = option.process_value(context, (text,) if option.multiple else text)
        except click.BadParameter as error:
            raise OptionError(error.format_message()) from error
        if option.multiple and isinstance(value, Mapping):
            value = {**self.given.get(key, {}), **value}
        elif option.multiple:
            value = (*self.given.get(key, ()), *value)
        return self._checked({**self.given, key: value})

    def without_value(self, name: str) -> "Settings":
        """With an option's default; raises `OptionError` as `with_value` does."""
        key = self._find(name).name
        others = {name: value for name, value in self.given.items() if name != key}
        return self._checked({**self.defaults, **others})

    def listed(self) -> dict[str, str]:
        """All options with their values, by their command-line names without hyphens."""
        values = self.complete(self.given)
        return {flag: _shown(getattr(values, str(o.name))) for flag, o in self._by_flag().items()}

    def _by_flag(self) -> dict[str, click.Option]:
        return {flag_of(option).removeprefix("--"): option for option in self.options}

    def _find(self, name: str) -> click.Option:
        known = self._by_flag()
        typed = name.lstrip("-").replace("_", "-")
        if typed not in known:
            hint = suggest(typed, known, "/set lists all options")
            raise OptionError(f"there is no option '{name}': {hint}")
        return known[typed]

    def _checked(self, given: Mapping[str, Any]) -> "Settings":
        self.complete(given)
        return replace(self, given=given)


def _shown(value: Any) -> str:
    """A value for a list of options; "-" for none."""
    if value is None or value in ((), {}):
        return "-"
    return ", ".join(map(repr, value)) if isinstance(value, tuple) else str(value)
