"""Settings as a plan carries them, plain values that JSON has, and back: what a process is told it need not read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from peerd.config.settings import Section
from peerd.domain.alert import Rate

AnySection = TypeVar("AnySection", bound=Section)


def as_plain(section: Section) -> dict[str, Any]:
    """A section, or all of them, without what is a default.

    >>> from peerd.config.settings import NodeSettings
    >>> as_plain(NodeSettings(name="video-1", run_directory=Path("/run/peerd"), grace=90.0))
    {'name': 'video-1', 'run_directory': '/run/peerd', 'grace': 90.0}
    """
    plain: dict[str, Any] = _finite(msgspec.to_builtins(section, enc_hook=_text_of, str_keys=True))
    return plain


def from_plain(plain: Mapping[str, Any], section: type[AnySection]) -> AnySection:
    """What `as_plain` made a section of.

    >>> from peerd.config.settings import Settings
    >>> from_plain({"project_directory": "/srv", "node": {"grace": 90.0}}, Settings).node.grace
    90.0
    """
    return msgspec.convert(plain, section, dec_hook=_read)


def _finite(value: Any) -> Any:
    """What a user's own options may hold, TOML has and JSON has not, inf and nan, is null."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {key: _finite(one) for key, one in value.items()}
        case list() | tuple():
            return [_finite(one) for one in value]
        case _:
            return value


def _text_of(value: Any) -> str:
    if isinstance(value, Path | Rate):
        return str(value)
    raise TypeError(f"{type(value).__name__} is no setting")


def _read(kind: type[Any], plain: Any) -> Any:
    return Rate.parse(plain) if kind is Rate else kind(plain)
