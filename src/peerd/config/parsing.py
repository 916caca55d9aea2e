"""Parses tables into sections: each value by the type of its key, and every mistake is found at once.

All written values are parsed here: values of peerd.toml, the attributes of a worker's class,
and the schedules that an agent's code registers.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from enum import EnumType
from functools import cache
from operator import ge, gt, le, lt
from typing import Annotated, Any, Final, NamedTuple, Union, get_args, get_origin

import msgspec
from msgspec import UNSET

from peerd.config.problems import KeyPath, did_you_mean
from peerd.config.section import GIVEN, AnySection, Section
from peerd.config.settings import Document
from peerd.config.values import CheckAfter, ConvertBefore

BOUNDS: Final = (("ge", ge, "at least"), ("gt", gt, "more than"), ("le", le, "at most"), ("lt", lt, "less than"))
EXPECTED: Final[Mapping[Any, str]] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text in quotes",
    tuple: "text, or a list of texts",
    Mapping: "a table",
}
"""Words for the value that a type wants."""
FOUND: Final[Mapping[type, str]] = {
    bool: "true or false",
    str: "text",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "a table",
}
"""Words for a value of another type."""


class Mistake(NamedTuple):
    """A key with a value that is wrong, or that is missing or unknown, without its place in a file."""

    path: KeyPath
    message: str
    remedy: str = ""


class InvalidSection(ValueError):
    """Values cannot be a section; `mistakes` are all that are in them."""

    def __init__(self, mistakes: list[Mistake]) -> None:
        super().__init__(mistakes)
        self.mistakes = mistakes

    def __str__(self) -> str:
        """Each key with its mistake."""
        return "; ".join(f"{'.'.join(one.path)}: {one.message}" for one in self.mistakes)


class _WrongValue(ValueError):
    """A value is refused with a message and a remedy."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy


def parse_section(section: type[AnySection], table: Mapping[str, Any]) -> AnySection:
    """The settings of a table.

    Raises:
        InvalidSection: with everything that is wrong with it.

    >>> from peerd.config.settings import QueueSettings
    >>> parse_section(QueueSettings, {"history": "1d"}).history
    86400.0
    >>> parse_section(QueueSettings, {"max_jobs": 0, "histroy": "1d"})
    Traceback (most recent call last):
    ...
    peerd.config.parsing.InvalidSection: histroy: unknown key; max_jobs: must be at least 1
    """
    parser = SectionParser()
    parsed: AnySection = parser.parse_table(section, table)
    if parser.mistakes:
        raise InvalidSection(parser.mistakes)
    return parsed


class SectionParser:
    """Parses tables, and collects what is wrong with them.

    Attributes:
        mistakes: all that were found.
        invalid_keys: the keys whose values were replaced by defaults, and the tables that were left out because they
            have no value for a key that must be given.
    """

    def __init__(self) -> None:
        self.mistakes: list[Mistake] = []
        self.invalid_keys: set[KeyPath] = set()

    def parse_table(self, section: type[Section], table: Mapping[str, Any], path: KeyPath = ()) -> Any:
        """The section, with defaults for the wrong values; UNSET if a key that must be given has no valid value."""
        fields = _fields_of(section)
        self._note_unknown_keys(section, table, path)
        values = {key: self._parse(fields[key].type, table[key], (*path, key)) for key in fields if key in table}
        valid = {key: value for key, value in values.items() if value is not UNSET}
        lacking = [key for key, field in fields.items() if field.required and key not in valid]
        for key in lacking:
            if key not in table:
                self._note((*path, key), "must be given")
        if lacking:
            self.invalid_keys.add(path)
            return UNSET
        given = {GIVEN: tuple(sorted(valid))} if GIVEN in section.__struct_fields__ else {}
        return section(**valid, **given)

    def _note_unknown_keys(self, section: type[Section], table: Mapping[str, Any], path: KeyPath) -> None:
        kind, known = "table" if section is Document else "key", _fields_of(section)
        unknown = [key for key in table if key not in known]
        self.mistakes += [Mistake((*path, key), f"unknown {kind}", did_you_mean(key, known)) for key in unknown]

    def _note(self, path: KeyPath, message: str, remedy: str = "") -> None:
        self.mistakes.append(Mistake(path, message, remedy))
        self.invalid_keys.add(path)

    def _parse(self, kind: Any, value: Any, path: KeyPath) -> Any:
        """The value as a type of `peerd.config.values` has it; UNSET if there is a mistake in it."""
        try:
            return self._parse_by_type(kind, value, path)
        except ValueError as error:
            self._note(path, str(error), getattr(error, "remedy", ""))
            return UNSET

    def _parse_by_type(self, kind: Any, value: Any, path: KeyPath) -> Any:
        origin, inner = get_origin(kind), get_args(kind)
        if origin is Annotated:
            return self._parse_annotated(kind, value, path)
        if origin in (Union, types.UnionType):  # with None, which is not written
            return None if value is None else self._parse_by_type(inner[0], value, path)
        if origin is tuple:
            return self._parse_items(inner[0], value, path)
        if origin is Mapping:
            return self._parse_entries(inner, value, path)
        if isinstance(kind, type) and issubclass(kind, Section):
            return self.parse_table(kind, _to_table(value), path)
        return _convert(kind, value)

    def _parse_annotated(self, kind: Any, value: Any, path: KeyPath) -> Any:
        converted = value
        for rule in reversed(kind.__metadata__):
            if isinstance(rule, ConvertBefore):
                converted = rule.function(converted)
        parsed = self._parse_by_type(kind.__origin__, converted, path)
        for rule in kind.__metadata__ if parsed is not UNSET else ():
            _check(rule, parsed)
        return parsed

    def _parse_items(self, kind: Any, value: Any, path: KeyPath) -> Any:
        if not isinstance(value, tuple):
            raise _wrong_type(tuple, value)
        items = tuple(self._parse(kind, item, path) for item in value)
        return UNSET if any(item is UNSET for item in items) else items

    def _parse_entries(self, kinds: tuple[Any, ...], value: Any, path: KeyPath) -> Any:
        key_kind, kind = kinds
        entries = {
            self._parse(key_kind, key, (*path, str(key))): self._parse(kind, one, (*path, str(key)))
            for key, one in _to_table(value).items()
        }
        return {key: one for key, one in entries.items() if key is not UNSET and one is not UNSET}


@cache
def _fields_of(section: type[Section]) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.name: field for field in msgspec.structs.fields(section) if field.name != GIVEN}


def _check(rule: object, value: Any) -> None:
    if isinstance(rule, CheckAfter):
        rule.function(value)
    if isinstance(rule, msgspec.Meta):
        _check_bounds(rule, value)
        _check_length(rule, value)


def _check_bounds(bounds: msgspec.Meta, value: Any) -> None:
    for name, holds, words in BOUNDS:
        bound = getattr(bounds, name)
        if bound is not None and not holds(value, bound):
            raise ValueError(f"must be {words} {bound}")


def _check_length(bounds: msgspec.Meta, value: Any) -> None:
    if bounds.min_length is not None and len(value) < bounds.min_length:
        at_least = f"must have at least {bounds.min_length} characters"
        raise ValueError(at_least if isinstance(value, str) else "must not be empty")
    if bounds.max_length is not None and len(value) > bounds.max_length:
        at_most = f"must have at most {bounds.max_length} characters"
        raise ValueError(at_most if isinstance(value, str) else f"lists more than {bounds.max_length}")


def _to_table(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong_type(Mapping, value)
    return value


def _convert(kind: Any, value: Any) -> Any:
    if kind is Any:
        return value
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        choices = kind if isinstance(kind, EnumType) else get_args(kind)
        if not choices:
            raise _wrong_type(kind, value) from None
        *others, last = [repr(str(choice)) for choice in choices]
        raise ValueError(f"must be {', '.join(others)} or {last}") from None


def _wrong_type(kind: Any, value: object) -> _WrongValue:
    found = FOUND.get(type(value), f"a {type(value).__name__}")
    return _WrongValue(f"must be {EXPECTED.get(kind, 'a path in quotes')}", f"this is {found}")
