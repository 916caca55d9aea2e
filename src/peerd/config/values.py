"""The kinds of values that settings have, each read from what a person writes.

`Before` and `After` name functions, and `Meta` bounds, with which `peerd.config.reading.models` reads a value; a
process that is told its settings has no use for them, and loads none of what reads them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import urlsplit

from msgspec import Meta

from peerd.config.address import normalise_url
from peerd.domain.alert import Rate
from peerd.domain.bind_address import parse_binding
from peerd.domain.duration import parse_duration
from peerd.domain.errors import InvalidTask
from peerd.domain.quoting import quoted
from peerd.domain.size import parse_size
from peerd.domain.task import QUEUE_NAME, check_text


class Before(NamedTuple):
    """What makes a value of what was written; it raises ValueError, with a sentence, for what it cannot read."""

    function: Callable[[Any], Any]


class After(NamedTuple):
    """The same, for a value of the right type."""

    function: Callable[[Any], Any]


LONGEST_DURATION: Final = 100 * 365 * 86_400.0
"""Seconds: a hundred years. Beyond it some timer, or some database, can count no further."""
LARGEST: Final = 2**31 - 1
"""What an INTEGER column holds at the most."""
_FILE_MODE = re.compile(r"0?[0-7]{3}")
_ENTRY_POINT = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def listed(value: Any) -> Any:
    """A list, or one text in place of a list of one."""
    return tuple(value) if isinstance(value, list) else (value,) if isinstance(value, str) else value


def lower(value: Any) -> Any:
    """A text in small letters."""
    return value.lower() if isinstance(value, str) else value


def _words(value: Any) -> Any:
    if isinstance(value, str):
        problem = "is a text; write the program and its arguments as a list, no shell reads them"
        raise ValueError(problem)  # noqa: TRY004 - only ValueErrors are worded
    return tuple(value) if isinstance(value, list) else value


def _usable(url: str) -> str:
    normalise_url(url)
    return url


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


Duration = Annotated[float, After(_within_a_century), Before(parse_duration)]
"""Seconds, zero allowed."""

Period = Annotated[float, After(_longer_than_nothing), After(_within_a_century), Before(parse_duration)]
"""Seconds, more than zero."""

PeriodOrNone = Annotated[Period | None, Before(_or_none)]
"""Seconds, more than zero; "none" switches off what has a period by default."""

Size = Annotated[int, After(_within_the_system), Before(parse_size)]
"""Bytes."""

HookUrl = Annotated[str, After(_hook_url)]
"""An http or https address, which may hold a secret."""
MailServer = Annotated[str, After(_mail_server)]
AlertRate = Annotated[Rate, Before(Rate.parse)]

Count = Annotated[int, Meta(ge=1, le=LARGEST)]
Few = Annotated[int, Meta(ge=1, le=1000)]
"""A number of processes or connections, of which a machine bears only so many."""
Places = Annotated[int, Meta(ge=1, le=10_000)]
"""A number of tasks at once in one process."""
Processors = Annotated[float, Meta(gt=0, le=10_000)]
"""How many processors something keeps busy."""
Flag = bool
Text = Annotated[str, After(_storable)]
FilePath = Annotated[Path, Before(_pathlike)]
EntryPoint = Annotated[str, After(_entry_point)]
EntryPoints = Annotated[tuple[EntryPoint, ...], Meta(min_length=1), Before(listed)]
Texts = Annotated[tuple[Text, ...], Meta(min_length=1), Before(listed)]
Words = Annotated[tuple[Text, ...], Meta(min_length=1), Before(_words)]
"""A program and its arguments."""
UsableUrl = Annotated[str, After(_usable)]
"""Of a database."""
Proxies = Annotated[tuple[Text, ...], Before(listed)]
Binding = Annotated[str, After(_storable), After(_binding)]
"""Where to listen; see `peerd.domain.bind_address`."""
Bindings = Annotated[tuple[Binding, ...], Meta(min_length=1, max_length=20), After(_each_once), Before(listed)]
FileMode = Annotated[int, Meta(ge=0, le=0o777), Before(_file_mode)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,190}$")]
KindNames = Annotated[tuple[Name, ...], Meta(min_length=1), Before(listed)]
"""Kinds of worker processes."""
QueueName = Annotated[str, After(_queue_name)]
QueueNames = Annotated[tuple[QueueName, ...], Meta(min_length=1), Before(listed)]
