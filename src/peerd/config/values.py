"""The kinds of values that settings have, each read from what a person writes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from peerd.domain.duration import parse_duration
from peerd.domain.size import parse_size

_ENTRY_POINT = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def _listed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else (value,) if isinstance(value, str) else value


def _pathlike(value: Any) -> Any:
    return Path(value) if isinstance(value, str) else value


def _longer_than_nothing(seconds: float) -> float:
    if seconds == 0:
        raise ValueError("must be longer than 0")
    return seconds


def _entry_point(text: str) -> str:
    if not _ENTRY_POINT.fullmatch(text):
        raise ValueError(f"{text!r} names no object: write 'module:name', for example 'studio.jobs:video'")
    return text


Duration = Annotated[float, BeforeValidator(parse_duration)]
"""Seconds, zero allowed."""

Period = Annotated[float, AfterValidator(_longer_than_nothing), BeforeValidator(parse_duration)]
"""Seconds, more than zero."""

Size = Annotated[int, BeforeValidator(parse_size)]
"""Bytes."""

Count = Annotated[int, Field(strict=True, ge=1)]
Flag = Annotated[bool, Field(strict=True)]
FilePath = Annotated[Path, BeforeValidator(_pathlike)]
EntryPoint = Annotated[str, AfterValidator(_entry_point)]
EntryPoints = Annotated[tuple[EntryPoint, ...], Field(min_length=1), BeforeValidator(_listed)]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,190}$")]
Names = Annotated[tuple[str, ...], Field(min_length=1), BeforeValidator(_listed)]
