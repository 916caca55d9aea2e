"""What reads the tables of peerd.toml: a pydantic model of each section, made of the section itself.

This is the one place where what somebody has written becomes settings. Pydantic finds every mistake and not only the
first; it takes a quarter of a second to load, so only the command, the planner and an agent whose code registers
schedules do so.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from functools import cache, reduce
from operator import or_
from typing import Annotated, Any, ClassVar, Final, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec
from pydantic import (
    AfterValidator,
    AllowInfNan,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
    create_model,
)

from peerd.config.settings import GIVEN, Section
from peerd.config.values import CheckAfter, ConvertBefore

__all__ = ["ValidationError", "parse_section"]

AnySection = TypeVar("AnySection", bound=Section)

MODEL_CONFIG: Final = ConfigDict(extra="forbid", hide_input_in_errors=True, arbitrary_types_allowed=True)
"""A table with a key that it does not know is a mistake; what was written may be a secret."""
STRICT_TYPES: Final[Mapping[Any, Any]] = {
    int: Annotated[int, Strict()],
    bool: Annotated[bool, Strict()],
    float: Annotated[float, AllowInfNan(False)],
}
"""A text is no number, 1 is not true, and nothing is infinite."""


def parse_section(section: type[AnySection], values: Mapping[str, Any]) -> AnySection:
    """The settings of a table.

    Raises:
        ValidationError: all that is wrong with it.
    """
    return cast("AnySection", _to_section(_model_of(section).model_validate(values)))


class _Model(BaseModel):
    model_config = MODEL_CONFIG
    section_type: ClassVar[type[Section]]


@cache
def _model_of(section: type[Section]) -> type[_Model]:
    types_of = get_type_hints(section, include_extras=True)
    required = {one.name for one in msgspec.structs.fields(section) if one.required}
    fields: dict[str, Any] = {
        key: (_to_pydantic_type(types_of[key]), ... if key in required else None) for key in section.known_keys()
    }
    made = create_model(section.__name__, __base__=_Model, **fields)
    made.section_type = section
    return made


def _to_pydantic_type(kind: Any) -> Any:
    """A type of `peerd.config.values`, in pydantic's words."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        base, *hints = inner
        return Annotated[(_to_pydantic_type(base), *map(_to_pydantic_constraint, hints))]
    if origin in (Union, types.UnionType):
        return reduce(or_, map(_to_pydantic_type, inner))
    if origin in (tuple, Mapping):
        return origin[tuple(map(_to_pydantic_type, inner))]
    if isinstance(kind, type) and issubclass(kind, Section):
        return _model_of(kind)
    return STRICT_TYPES.get(kind, kind)


def _to_pydantic_constraint(hint: object) -> Any:
    match hint:
        case ConvertBefore(function):
            return BeforeValidator(function)
        case CheckAfter(function):
            return AfterValidator(function)
        case msgspec.Meta():
            bounds = ("ge", "gt", "le", "lt", "min_length", "max_length", "pattern")
            return Field(**{name: getattr(hint, name) for name in bounds if getattr(hint, name) is not None})
        case _:
            raise TypeError(f"{hint!r} says nothing about a setting")


def _to_section(value: Any) -> Any:
    """What was given, as settings: the rest are their own defaults."""
    match value:
        case _Model():
            section = value.section_type
            given: dict[str, Any] = {key: _to_section(getattr(value, key)) for key in value.model_fields_set}
            given_field = {GIVEN: tuple(sorted(given))} if GIVEN in section.__struct_fields__ else {}
            return section(**given, **given_field)
        case dict():
            return {key: _to_section(one) for key, one in value.items()}
        case _:
            return value
