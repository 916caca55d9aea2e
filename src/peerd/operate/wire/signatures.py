"""The arguments of a function as a struct that msgspec encodes, decodes and describes, made from its annotations.

Each parameter is a field of its name. Options that a `TypedDict` describes are fields beside them; other ``*args`` and
``**named`` are a list and an object of their own. What the struct does not know is refused.
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, Final, Union, Unpack, cast, get_args, get_origin, get_type_hints, is_typeddict

import msgspec
from msgspec import UNSET, Meta, UnsetType

from peerd.domain.task import Call

Field = tuple[str, Any] | tuple[str, Any, Any]
"""A name, a type, and a default."""
SEQUENCES: Final = (Collection, Iterable, Sequence)
_DESCRIPTION: Final = re.compile(r"^    (\w+(?:, \w+)*): (.*(?:\n      +.*)*)", re.MULTILINE)


class WireCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A `Call` without the object that made it."""

    queue: str
    name: str
    body: str
    limit_key: str | None = None


STAND_INS: Final[Mapping[Any, Any]] = {object: Any, Call: WireCall}


class WireFields(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The root of structs that stand for arguments or a `TypedDict`; a field that was left out is unset."""

    def given(self) -> dict[str, Any]:
        """The fields that are set, as a function takes them."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: from_wire(value) for name, value in values.items() if value is not UNSET}


class ArgumentStruct:
    """The arguments of a function.

    Args:
        name: of the struct, in documents.
        function: its annotations name the types.
        skipped: parameters before the first argument.
    """

    def __init__(self, name: str, function: Callable[..., Any], *, skipped: int = 1) -> None:
        parameters = list(inspect.signature(function).parameters.values())[skipped:]
        self._parameters = parameters
        self._signature = inspect.Signature([one.replace(annotation=one.empty) for one in parameters])
        hints = get_type_hints(function)
        described = descriptions_in(function, "Args")
        self.fields = [
            _described(field, described) for one in parameters for field in _fields_of(one, hints.get(one.name, Any))
        ]
        self.type = fields_struct(name, self.fields)

    def names(self) -> tuple[str, ...]:
        """The names of its fields."""
        return self.type.__struct_fields__

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> WireFields:
        """The struct of a call; raises TypeError as the call would."""
        values: dict[str, Any] = {}
        bound = self._signature.bind(*args, **kwargs).arguments
        for one in self._parameters:
            if one.name not in bound:
                continue
            if one.kind is one.VAR_KEYWORD and one.name not in self.names():
                values |= bound[one.name]
            else:
                values[one.name] = bound[one.name]
        if unknown := sorted(set(values) - set(self.names())):
            raise TypeError(f"there is no option {unknown[0]!r}: there are {', '.join(self.names())}")
        return self.type(**{name: to_wire(value) for name, value in values.items()})

    def unbind(self, fields: WireFields) -> tuple[list[Any], dict[str, Any]]:
        """The positional and the named arguments that a struct stands for."""
        given = fields.given()
        args: list[Any] = []
        for one in self._parameters:
            if one.kind is one.POSITIONAL_ONLY:
                args.append(given.pop(one.name))
            elif one.kind is one.VAR_POSITIONAL:
                args += given.pop(one.name, ())
            elif one.kind is one.VAR_KEYWORD and one.name in given:
                given |= given.pop(one.name)
        return args, given


def wire_type(annotation: Any) -> Any:
    """The type that msgspec takes for an annotation.

    >>> wire_type(Iterable[str]), wire_type(object)
    (list[str], typing.Any)
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in STAND_INS:
        return STAND_INS[annotation]
    if is_typeddict(annotation):
        return _options_struct(annotation)
    if origin in SEQUENCES:
        return list[wire_type(arguments[0])]  # type: ignore[misc]  # a type that is made here
    if origin in {Union, types.UnionType}:
        return _union([wire_type(one) for one in arguments])
    if origin in {list, dict, tuple}:
        return origin[tuple(one if one is Ellipsis else wire_type(one) for one in arguments)]
    return annotation


def to_wire(value: Any) -> Any:
    """A value for its field: calls without their handlers, and iterators as lists."""
    match value:
        case Call():
            return WireCall(value.queue, value.name, value.body, value.limit_key)
        case list() | tuple():
            return [to_wire(one) for one in value] if any(isinstance(one, Call | tuple) for one in value) else value
        case _:
            return value


def from_wire(value: Any) -> Any:
    """The argument of a field's value."""
    match value:
        case WireCall():
            return Call(value.queue, value.name, value.body, limit_key=value.limit_key)
        case WireFields():
            return value.given()
        case list() | tuple():
            is_plain = not any(isinstance(one, WireCall | WireFields | tuple) for one in value)
            return value if is_plain else type(value)(from_wire(one) for one in value)
        case _:
            return value


def _fields_of(parameter: inspect.Parameter, annotation: Any) -> Iterator[Field]:
    if parameter.kind is parameter.VAR_POSITIONAL:
        yield _optional(parameter.name, list[wire_type(annotation)])  # type: ignore[misc]  # as above
    elif parameter.kind is not parameter.VAR_KEYWORD:
        kind = wire_type(annotation)
        yield (parameter.name, kind) if parameter.default is parameter.empty else _optional(parameter.name, kind)
    elif get_origin(annotation) is Unpack:
        for name, kind in get_type_hints(get_args(annotation)[0]).items():
            yield _optional(name, wire_type(kind))
    else:
        yield _optional(parameter.name, dict[str, wire_type(annotation)])  # type: ignore[misc]  # as above


def _optional(name: str, kind: Any) -> Field:
    return (name, _union([kind, UnsetType]), UNSET)


def _options_struct(kind: Any) -> type[WireFields]:
    required = kind.__required_keys__
    hints = {name: wire_type(annotation) for name, annotation in get_type_hints(kind).items()}
    fields = [(name, one) if name in required else _optional(name, one) for name, one in hints.items()]
    return fields_struct(kind.__name__, fields)


def fields_struct(name: str, fields: Iterable[Field], renamed: Mapping[str, str] | None = None) -> type[WireFields]:
    """A struct of fields; some have other names in JSON."""
    made: Any = msgspec.defstruct(name, fields, bases=(WireFields,), module=__name__, kw_only=True, rename=renamed)
    return cast("type[WireFields]", made)


def descriptions_in(documented: Any, section: str) -> dict[str, str]:
    """What a docstring says of arguments or attributes, by their names.

    >>> descriptions_in(ArgumentStruct, "Args")["name"]
    'of the struct, in documents.'
    """
    text = (inspect.getdoc(documented) or "").partition(f"{section}:\n")[2].partition("\n\n")[0]
    found = _DESCRIPTION.findall(text)
    return {name: " ".join(words.split()) for names, words in found for name in names.split(", ")}


def _described(field: Field, descriptions: Mapping[str, str]) -> Field:
    name, kind, *default = field
    return (name, Annotated[kind, Meta(description=descriptions[name])], *default) if name in descriptions else field


def _union(kinds: list[Any]) -> Any:
    """A union; a text stands for an enumeration of texts, too, since msgspec takes one of both."""
    if Any in kinds:
        return Any
    texts = [one for one in kinds if one is not str and isinstance(one, type) and issubclass(one, str)]
    left = [one for one in kinds if not (str in kinds and one in texts and issubclass(one, Enum))]
    return Union[tuple(left)]  # noqa: UP007 - of types that are known at run time only
