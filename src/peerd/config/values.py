"""The kinds of values that settings have, each read from what a person writes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, StringConstraints

from peerd.domain.alert import Rate
from peerd.domain.binding import parse_binding
from peerd.domain.duration import parse_duration
from peerd.domain.errors import InvalidTask
from peerd.domain.quoting import quoted
from peerd.domain.size import parse_size
from peerd.domain.task import QUEUE_NAME, check_text

LONGEST_DURATION: Final = 100 * 365 * 86_400.0
"""Seconds: a hundred years. Beyond it some timer, or some database, can count no further."""
LARGEST: Final = 2**31 - 1
"""What an INTEGER column holds at the most."""
_FILE_MODE = re.compile(r"0?[0-7]{3}")
_ENTRY_POINT = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def listed(value: Any) -> Any:
    """A list, or one text in place of a list of one."""
    return tuple(value) if isinstance(value, list) else (value,) if isinstance(value, str) else value


def _pathlike(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    _storable(value)
    try:
        Path(value).expanduser()
    except RuntimeError:
        raise ValueError(f"there is no home folder of {quoted(Path(value).parts[0][1:])} here") from None
    return Path(value)


def _storable(text: str) -> str:
    """A text that the database, the system and the log can take."""
    try:
        check_text("", text, 4096)
    except InvalidTask as error:
        raise ValueError(error.problem.partition(";")[0]) from None
    return text


def _within_a_century(seconds: float) -> float:
    if seconds > LONGEST_DURATION:
        raise ValueError("is longer than 100 years")
    return seconds


def _within_the_system(size: int) -> int:
    if size >= 2**63:
        raise ValueError("is larger than any memory or file can be")
    return size


def _queue_name(text: str) -> str:
    if not QUEUE_NAME.fullmatch(text):
        raise ValueError(f"{quoted(text)} is no queue's name: 1 to 200 of A-Z a-z 0-9 - + / ; . $ _ ( ) : @")
    return text


def _longer_than_nothing(seconds: float) -> float:
    if seconds == 0:
        raise ValueError("must be longer than 0")
    return seconds


def _hook_url(text: str) -> str:
    try:
        parts = urlsplit(_storable(text))
        host = parts.hostname
        parts.port  # noqa: B018 - reading it checks it
    except ValueError:
        raise ValueError("is not an address") from None
    if parts.scheme not in {"http", "https"} or not host:
        raise ValueError("must be an address that begins with http:// or https://")
    return text


def _mail_server(text: str) -> str:
    host, _, port = _storable(text).rpartition(":") if ":" in text else (text, "", "0")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise ValueError(f"{quoted(text)} is no mail server: write 'host' or 'host:port'")
    return text


def _entry_point(text: str) -> str:
    if not _ENTRY_POINT.fullmatch(text):
        raise ValueError(f"{quoted(text)} names no object: write 'module:name', for example 'studio.jobs:video'")
    return text


def _binding(text: str) -> str:
    parse_binding(text)
    return text


def _each_once(values: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(values)) < len(values):
        raise ValueError("names one of them twice")
    return values


def _file_mode(value: Any) -> Any:
    if isinstance(value, str):
        if not _FILE_MODE.fullmatch(value):
            raise ValueError(f"{quoted(value)} is no file mode: write it as chmod reads it, for example '0660'")
        return int(value, 8)
    if isinstance(value, int) and value > 0o777:
        raise ValueError("is no file mode: write '0660', or 0o660")
    return value


def _or_none(value: Any) -> Any:
    return None if value == "none" else value


Duration = Annotated[float, AfterValidator(_within_a_century), BeforeValidator(parse_duration)]
"""Seconds, zero allowed."""

Period = Annotated[
    float, AfterValidator(_longer_than_nothing), AfterValidator(_within_a_century), BeforeValidator(parse_duration)
]
"""Seconds, more than zero."""

PeriodOrNone = Annotated[Period | None, BeforeValidator(_or_none)]
"""Seconds, more than zero; "none" switches off what has a period by default."""

Size = Annotated[int, AfterValidator(_within_the_system), BeforeValidator(parse_size)]
"""Bytes."""

HookUrl = Annotated[str, AfterValidator(_hook_url)]
"""An http or https address, which may hold a secret."""
MailServer = Annotated[str, AfterValidator(_mail_server)]
AlertRate = Annotated[Rate, BeforeValidator(Rate.parse), PlainSerializer(str)]

Count = Annotated[int, Field(strict=True, ge=1, le=LARGEST)]
Few = Annotated[int, Field(strict=True, ge=1, le=1000)]
"""A number of processes or connections, of which a machine bears only so many."""
Places = Annotated[int, Field(strict=True, ge=1, le=10_000)]
"""A number of tasks at once in one process."""
Processors = Annotated[float, Field(gt=0, le=10_000, allow_inf_nan=False)]
"""How many processors something keeps busy."""
Flag = Annotated[bool, Field(strict=True)]
Text = Annotated[str, AfterValidator(_storable)]
FilePath = Annotated[Path, BeforeValidator(_pathlike)]
EntryPoint = Annotated[str, AfterValidator(_entry_point)]
EntryPoints = Annotated[tuple[EntryPoint, ...], Field(min_length=1), BeforeValidator(listed)]
Texts = Annotated[tuple[Text, ...], Field(min_length=1), BeforeValidator(listed)]
Proxies = Annotated[tuple[Text, ...], BeforeValidator(listed)]
Binding = Annotated[str, AfterValidator(_storable), AfterValidator(_binding)]
"""Where to listen; see `peerd.domain.binding`."""
Bindings = Annotated[
    tuple[Binding, ...], Field(min_length=1, max_length=20), AfterValidator(_each_once), BeforeValidator(listed)
]
FileMode = Annotated[int, Field(strict=True, ge=0, le=0o777), BeforeValidator(_file_mode)]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,190}$")]
KindNames = Annotated[tuple[Name, ...], Field(min_length=1), BeforeValidator(listed)]
"""Kinds of worker processes."""
QueueName = Annotated[str, AfterValidator(_queue_name)]
QueueNames = Annotated[tuple[QueueName, ...], Field(min_length=1), BeforeValidator(listed)]
