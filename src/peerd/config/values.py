"""The kinds of values that settings have, each read from what a person writes.

`ConvertBefore` and `CheckAfter` name functions, and `Meta` bounds, with which `peerd.config.reading.models` reads a
value; a process that is told its settings has no use for them, and loads none of what reads them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import urlsplit

from msgspec import Meta

from peerd.config.address import normalise_url
from peerd.domain.alert import AlertRate
from peerd.domain.bind_address import parse_bind_address
from peerd.domain.duration import parse_duration
from peerd.domain.errors import InvalidTask
from peerd.domain.quoting import quoted
from peerd.domain.size import parse_size
from peerd.domain.task import QUEUE_NAME, check_text


class ConvertBefore(NamedTuple):
    """What makes a value of what was written; it raises ValueError, with a sentence, for what it cannot read."""

    function: Callable[[Any], Any]


class CheckAfter(NamedTuple):
    """The same, for a value of the right type."""

    function: Callable[[Any], Any]


MAX_DURATION: Final = 100 * 365 * 86_400.0
"""Seconds: a hundred years. Beyond it some timer, or some database, can count no further."""
MAX_INTEGER: Final = 2**31 - 1
"""What an INTEGER column holds at the most."""
_FILE_MODE = re.compile(r"0?[0-7]{3}")
_ENTRY_POINT = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def to_tuple(value: Any) -> Any:
    """A list, or one text in place of a list of one."""
    return tuple(value) if isinstance(value, list) else (value,) if isinstance(value, str) else value


def lower(value: Any) -> Any:
    """A text in small letters."""
    return value.lower() if isinstance(value, str) else value


def _to_command_line(value: Any) -> Any:
    if isinstance(value, str):
        problem = "is a text; write the program and its arguments as a list, no shell reads them"
        raise ValueError(problem)  # noqa: TRY004 - only ValueErrors are worded
    return tuple(value) if isinstance(value, list) else value


def _check_database_url(url: str) -> str:
    normalise_url(url)
    return url


def _to_path(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    _check_storable(value)
    try:
        Path(value).expanduser()
    except RuntimeError:
        raise ValueError(f"there is no home folder of {quoted(Path(value).parts[0][1:])} here") from None
    return Path(value)


def _check_storable(text: str) -> str:
    """A text that the database, the system and the log can take."""
    try:
        check_text("", text, 4096)
    except InvalidTask as error:
        raise ValueError(error.problem.partition(";")[0]) from None
    return text


def _check_duration(seconds: float) -> float:
    if seconds > MAX_DURATION:
        raise ValueError("is longer than 100 years")
    return seconds


def _check_size(size: int) -> int:
    if size >= 2**63:
        raise ValueError("is larger than any memory or file can be")
    return size


def _check_queue_name(text: str) -> str:
    if not QUEUE_NAME.fullmatch(text):
        raise ValueError(f"{quoted(text)} is no queue's name: 1 to 200 of A-Z a-z 0-9 - + / ; . $ _ ( ) : @")
    return text


def _check_positive(seconds: float) -> float:
    if seconds == 0:
        raise ValueError("must be longer than 0")
    return seconds


def _check_hook_url(text: str) -> str:
    try:
        parts = urlsplit(_check_storable(text))
        host = parts.hostname
        parts.port  # noqa: B018 - reading it checks it
    except ValueError:
        raise ValueError("is not an address") from None
    if parts.scheme not in {"http", "https"} or not host:
        raise ValueError("must be an address that begins with http:// or https://")
    return text


def _check_mail_server(text: str) -> str:
    host, _, port = _check_storable(text).rpartition(":") if ":" in text else (text, "", "0")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise ValueError(f"{quoted(text)} is no mail server: write 'host' or 'host:port'")
    return text


def _check_entry_point(text: str) -> str:
    if not _ENTRY_POINT.fullmatch(text):
        raise ValueError(f"{quoted(text)} names no object: write 'module:name', for example 'studio.jobs:video'")
    return text


def _check_binding(text: str) -> str:
    parse_bind_address(text)
    return text


def _check_unique(values: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(values)) < len(values):
        raise ValueError("names one of them twice")
    return values


def _to_file_mode(value: Any) -> Any:
    if isinstance(value, str):
        if not _FILE_MODE.fullmatch(value):
            raise ValueError(f"{quoted(value)} is no file mode: write it as chmod reads it, for example '0660'")
        return int(value, 8)
    if isinstance(value, int) and value > 0o777:
        raise ValueError("is no file mode: write '0660', or 0o660")
    return value


def _none_text_to_none(value: Any) -> Any:
    return None if value == "none" else value


Duration = Annotated[float, CheckAfter(_check_duration), ConvertBefore(parse_duration)]
"""Seconds, zero allowed."""

Period = Annotated[float, CheckAfter(_check_positive), CheckAfter(_check_duration), ConvertBefore(parse_duration)]
"""Seconds, more than zero."""

PeriodOrNone = Annotated[Period | None, ConvertBefore(_none_text_to_none)]
"""Seconds, more than zero; "none" switches off what has a period by default."""

Size = Annotated[int, CheckAfter(_check_size), ConvertBefore(parse_size)]
"""Bytes."""

HookUrl = Annotated[str, CheckAfter(_check_hook_url)]
"""An http or https address, which may hold a secret."""
MailServer = Annotated[str, CheckAfter(_check_mail_server)]
AlertRateSetting = Annotated[AlertRate, ConvertBefore(AlertRate.parse)]

Count = Annotated[int, Meta(ge=1, le=MAX_INTEGER)]
SmallCount = Annotated[int, Meta(ge=1, le=1000)]
"""A number of processes or connections, of which a machine bears only so many."""
Concurrency = Annotated[int, Meta(ge=1, le=10_000)]
"""A number of tasks at once in one process."""
Processors = Annotated[float, Meta(gt=0, le=10_000)]
"""How many processors something keeps busy."""
Flag = bool
Text = Annotated[str, CheckAfter(_check_storable)]
FilePath = Annotated[Path, ConvertBefore(_to_path)]
EntryPoint = Annotated[str, CheckAfter(_check_entry_point)]
EntryPoints = Annotated[tuple[EntryPoint, ...], Meta(min_length=1), ConvertBefore(to_tuple)]
Texts = Annotated[tuple[Text, ...], Meta(min_length=1), ConvertBefore(to_tuple)]
CommandLine = Annotated[tuple[Text, ...], Meta(min_length=1), ConvertBefore(_to_command_line)]
"""A program and its arguments."""
DatabaseUrl = Annotated[str, CheckAfter(_check_database_url)]
"""Of a database."""
Proxies = Annotated[tuple[Text, ...], ConvertBefore(to_tuple)]
BindAddress = Annotated[str, CheckAfter(_check_storable), CheckAfter(_check_binding)]
"""Where to listen; see `peerd.domain.bind_address`."""
BindAddresses = Annotated[
    tuple[BindAddress, ...], Meta(min_length=1, max_length=20), CheckAfter(_check_unique), ConvertBefore(to_tuple)
]
FileMode = Annotated[int, Meta(ge=0, le=0o777), ConvertBefore(_to_file_mode)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,190}$")]
KindNames = Annotated[tuple[Name, ...], Meta(min_length=1), ConvertBefore(to_tuple)]
"""Kinds of worker processes."""
QueueName = Annotated[str, CheckAfter(_check_queue_name)]
QueueNames = Annotated[tuple[QueueName, ...], Meta(min_length=1), ConvertBefore(to_tuple)]
