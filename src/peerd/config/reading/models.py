"""Pydantic models of the sections of peerd.toml, made from the sections' types, and the texts of their errors.

This is the one place where values in a file become settings. Pydantic finds every mistake and not only the first; it
takes a quarter of a second to load, so only commands, the planner and an agent whose code registers schedules load it.
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
from pydantic_core import ErrorDetails

from peerd.config.reading.suggestions import did_you_mean
from peerd.config.settings import GIVEN, Document, MailSettings, ObjectStoreSettings, Section, WorkerSettings
from peerd.config.values import CheckAfter, ConvertBefore

__all__ = ["ValidationError", "describe_error", "key_path_of", "parse_section"]

AnySection = TypeVar("AnySection", bound=Section)

MODEL_CONFIG: Final = ConfigDict(extra="forbid", hide_input_in_errors=True, arbitrary_types_allowed=True)
"""An unknown key is a mistake; a value may be a secret, so errors do not show it."""
STRICT_TYPES: Final[Mapping[Any, Any]] = {
    int: Annotated[int, Strict()],
    bool: Annotated[bool, Strict()],
    float: Annotated[float, AllowInfNan(False)],
}
"""Text is no number, 1 is not true, and infinity is refused."""


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
    """The pydantic type for a type of `peerd.config.values`."""
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
            raise TypeError(f"{hint!r} is no constraint of a setting")


def _to_section(value: Any) -> Any:
    """The given values as settings, which have defaults for the others."""
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


def describe_error(error: ErrorDetails) -> tuple[str, str]:
    """The message and the remedy for one error of validation."""
    if error["type"] == "extra_forbidden":
        path = key_path_of(error)
        return f"unknown {'key' if len(path) > 1 else 'table'}", did_you_mean(
            path[-1], _section_at(path[:-1]).known_keys()
        )
    if error["type"] in _TYPE_MESSAGES:
        return _TYPE_MESSAGES[error["type"]], f"this is {_describe_type(error['input'])}"
    if error["type"] in _LENGTH_MESSAGES and isinstance(error["input"], str):
        return _LENGTH_MESSAGES[error["type"]].format_map(error["ctx"]), ""
    if error["type"] in _MESSAGES:
        return _MESSAGES[error["type"]].format_map(error.get("ctx", {})), _REMEDIES.get(error["type"], "")
    return error["msg"], ""


def key_path_of(error: ErrorDetails) -> tuple[str, ...]:
    """The key path that an error is about."""
    return tuple(str(part) for part in error["loc"] if part != "[key]" and not isinstance(part, int))


_TYPE_MESSAGES = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "bool_type": "must be true or false",
    "string_type": "must be text in quotes",
    "tuple_type": "must be text, or a list of texts",
    "path_type": "must be a path in quotes",
    "is_instance_of": "must be a path in quotes",
    "model_type": "must be a table",
    "dict_type": "must be a table",
    "mapping_type": "must be a table",
}

_MESSAGES = {
    "value_error": "{error}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "missing": "must be given",
    "too_long": "lists more than {max_length}",
    "too_short": "must not be empty",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "string_pattern_mismatch": "is not a name",
}
_LENGTH_MESSAGES = {
    "too_long": "must have at most {max_length} characters",
    "too_short": "must have at least {min_length} characters",
}
"""For texts: pydantic reports a text that was checked by a function like a list, without `string_` before the type."""
_REMEDIES = {
    "string_pattern_mismatch": "use up to 191 letters, digits, '.', '_' and '-', a letter or digit first",
}


def _section_at(path: tuple[str, ...]) -> type[Section]:
    if not path:
        return Document
    if path[0] == "workers":
        return WorkerSettings
    if path[0] == "alerts" and path[-1] == "mail":
        return MailSettings
    if path[:2] == ("storage", "object_stores") and len(path) > 2:
        return ObjectStoreSettings
    annotation = get_type_hints(Document)[path[0]]
    kinds = (kind for kind in (annotation, *get_args(annotation)) if isinstance(kind, type))
    return next(kind for kind in kinds if issubclass(kind, Section))


def _describe_type(value: object) -> str:
    names: dict[type, str] = {
        bool: "true or false",
        str: "text",
        int: "a number",
        float: "a number",
        list: "a list",
        dict: "a table",
    }
    return names.get(type(value), f"a {type(value).__name__}")
