"""A table of peerd.toml: its keys, its representation without secrets, and plain values of it.

The plan of a node carries plain JSON values, so that its processes need not read the file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from peerd.domain.alert import AlertRate

SECRET_KEYS: Final = frozenset({"secret", "token", "webhook"})
"""Keys whose values representations mask."""
GIVEN: Final = "given"
"""The field that is not a key: the names of the keys that the file gives."""


class Section(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A table of peerd.toml."""

    @classmethod
    def known_keys(cls) -> tuple[str, ...]:
        """The keys that the table may have."""
        return tuple(name for name in cls.__struct_fields__ if name != GIVEN)

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Each key with its value; secrets are masked."""
        return [(name, self._masked(name, getattr(self, name))) for name in self.__struct_fields__]

    def __repr__(self) -> str:
        """The section as a Python expression; secrets are masked."""
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def _masked(self, name: str, value: Any) -> Any:
        return "***" if name in SECRET_KEYS and value is not None else value


AnySection = TypeVar("AnySection", bound=Section)


def serialize_section(section: Section) -> dict[str, Any]:
    """A section, or all of them, as plain values without defaults.

    >>> from peerd.config.settings import NodeSettings
    >>> serialize_section(NodeSettings(name="video-1", run_directory=Path("/run/peerd"), grace=90.0))
    {'name': 'video-1', 'run_directory': '/run/peerd', 'grace': 90.0}
    """
    plain: dict[str, Any] = _replace_non_finite(msgspec.to_builtins(section, enc_hook=_encode_value, str_keys=True))
    return plain


def deserialize_section(plain: Mapping[str, Any], section: type[AnySection]) -> AnySection:
    """The section that `serialize_section` has made plain values of.

    >>> from peerd.config.settings import Settings
    >>> deserialize_section({"project_directory": "/srv", "node": {"grace": 90.0}}, Settings).node.grace
    90.0
    """
    return msgspec.convert(plain, section, dec_hook=_decode_value)


def _replace_non_finite(value: Any) -> Any:
    """A user's own options may hold inf and nan, which TOML has and JSON has not; they become null."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {key: _replace_non_finite(one) for key, one in value.items()}
        case list() | tuple():
            return [_replace_non_finite(one) for one in value]
        case _:
            return value


def _encode_value(value: Any) -> str:
    if isinstance(value, Path | AlertRate):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not a type of a setting")


def _decode_value(kind: type[Any], plain: Any) -> Any:
    return AlertRate.parse(plain) if kind is AlertRate else kind(plain)
