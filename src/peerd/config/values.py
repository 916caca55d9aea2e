"""Types of the values of settings, with the functions and bounds that parse them from peerd.toml.

`ConvertBefore`, `CheckAfter` and `Meta` are read by `peerd.config.parsing`; a process that gets its settings from a
plan does not use them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import urlsplit

from msgspec import Meta

from peerd.config.address import normalise_url
from peerd.domain.alert import AlertRate
from peerd.domain.bind_address import parse_bind_address
from peerd.domain.errors import InvalidTask
from peerd.domain.quoting import quoted
from peerd.domain.task import QUEUE_NAME, check_text
from peerd.domain.units import parse_duration, parse_size


class ConvertBefore(NamedTuple):
    """A function that converts the written value; it raises ValueError with a message."""

    function: Callable[[Any], Any]


class CheckAfter(NamedTuple):
    """A function that checks a value of the right type; it raises ValueError with a message."""

    function: Callable[[Any], object]


MAX_DURATION: Final = 100 * 365 * 86_400.0
"""Seconds: a hundred years, within the range of all timers and databases."""
MAX_INTEGER: Final = 2**31 - 1
"""The largest value of an INTEGER column."""
_TOKEN = re.compile(r"[!-~]{16,200}")
_FILE_MODE = re.compile(r"0?[0-7]{3}")
_HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_HOST_NAME_OR_ADDRESS = re.compile(rf"{_HOST_NAME.pattern}|[0-9a-f:]{{2,39}}")
_ENTRY_POINT = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def _check(is_valid: Callable[[Any], object], message: str = "") -> CheckAfter:
    """Checks a value by a function that returns false, or raises ValueError, for an invalid one."""

    def check(value: Any) -> None:
        if not is_valid(value):
            raise ValueError(message.format(quoted(value) if isinstance(value, str) else value))

    return CheckAfter(check)


def to_tuple(value: Any) -> Any:
    """A tuple of a list, of a set, or of a single text."""
    return tuple(value) if isinstance(value, list | set | frozenset) else (value,) if isinstance(value, str) else value


def lower(value: Any) -> Any:
    """A text in lower case."""
    return value.lower() if isinstance(value, str) else value


def _to_command_line(value: Any) -> Any:
    if isinstance(value, str):
        problem = "is a text; write the program and its arguments as a list, no shell reads them"
        raise ValueError(problem)  # noqa: TRY004 - only a ValueError has a message
    return tuple(value) if isinstance(value, list) else value


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
    """A text that the database, the system and the log accept."""
    try:
        check_text("", text, 4096)
    except InvalidTask as error:
        raise ValueError(error.problem.partition(";")[0]) from None
    return text


def _check_object_store_url(value: str) -> None:
    """An http or https address of a server; credentials do not belong into it."""
    _check_storable(value)
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("is no address of an object store: https://host or http://host:port")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("has more than an address; credentials belong into credentials_file")


def _check_hook_url(text: str) -> None:
    try:
        parts = urlsplit(_check_storable(text))
        host = parts.hostname
        parts.port  # noqa: B018 - reading it checks it
    except ValueError:
        raise ValueError("is not an address") from None
    if parts.scheme not in {"http", "https"} or not host:
        raise ValueError("must be an address that begins with http:// or https://")


def _check_mail_server(text: str) -> None:
    host, _, port = _check_storable(text).rpartition(":") if ":" in text else (text, "", "0")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise ValueError(f"{quoted(text)} is no mail server: write 'host' or 'host:port'")


def _to_file_mode(value: Any) -> Any:
    if isinstance(value, str):
        if not _FILE_MODE.fullmatch(value):
            raise ValueError(f"{quoted(value)} is no file mode: write it as chmod reads it, for example '0660'")
        return int(value, 8)
    if isinstance(value, int) and value > 0o777:
        raise ValueError("is no file mode: write '0660', or 0o660")
    return value


def check_token(text: str) -> str:
    """A token that a command of every protocol can carry; raises ValueError with a message."""
    if not _TOKEN.fullmatch(text):
        problem = "must be 16 to 200 printable ASCII characters without a space, so that a command can carry it"
        raise ValueError(problem)
    return text


Duration = Annotated[
    float, _check(lambda seconds: seconds <= MAX_DURATION, "is longer than 100 years"), ConvertBefore(parse_duration)
]
"""Seconds, zero allowed."""
Period = Annotated[Duration, _check(lambda seconds: seconds > 0, "must be longer than 0")]
"""Seconds, more than zero."""
PeriodOrNone = Annotated[Period | None, ConvertBefore(lambda value: None if value == "none" else value)]
"""Seconds, more than zero; "none" switches it off."""
SeriesAge = Annotated[Duration, _check(lambda seconds: seconds >= 7_200, "must be at least two hours")]
"""Seconds for which rows of a time series are kept, until coarser rows are made of them."""
Size = Annotated[
    int, _check(lambda size: size < 2**63, "is larger than any memory or file can be"), ConvertBefore(parse_size)
]
"""Bytes."""

TimeToRun = Annotated[
    Duration, _check(lambda seconds: 1 <= seconds < 2**32, "must be from 1 to 4294967295 seconds, as beanstalkd has it")
]
"""Seconds of a reservation."""
JobSize = Annotated[Size, _check(lambda size: 1 <= size <= 2**30, "must be from 1 byte to 1GiB")]
"""Bytes of a job's body."""

Token = Annotated[str, CheckAfter(check_token)]
"""A secret that a queue client presents."""
HookUrl = Annotated[str, CheckAfter(_check_hook_url)]
"""An http or https address, which may hold a secret."""
MailServer = Annotated[str, CheckAfter(_check_mail_server)]
AlertRateSetting = Annotated[AlertRate, ConvertBefore(AlertRate.parse)]

Count = Annotated[int, Meta(ge=1, le=MAX_INTEGER)]
SmallCount = Annotated[int, Meta(ge=1, le=1000)]
"""A number of processes or connections."""
Concurrency = Annotated[int, Meta(ge=1, le=10_000)]
"""A number of tasks at once in one process."""
Processors = Annotated[float, Meta(gt=0, le=10_000)]
"""A number of busy processors."""
Text = Annotated[str, CheckAfter(_check_storable)]
FilePath = Annotated[Path, ConvertBefore(_to_path)]
Folders = Annotated[tuple[FilePath, ...], Meta(max_length=100), ConvertBefore(to_tuple)]
EntryPoint = Annotated[
    str, _check(_ENTRY_POINT.fullmatch, "{} names no object: write 'module:name', for example 'studio.jobs:video'")
]
EntryPoints = Annotated[tuple[EntryPoint, ...], Meta(min_length=1), ConvertBefore(to_tuple)]
Texts = Annotated[tuple[Text, ...], Meta(min_length=1), ConvertBefore(to_tuple)]
CommandLine = Annotated[tuple[Text, ...], Meta(min_length=1), ConvertBefore(_to_command_line)]
"""A program and its arguments."""
DatabaseUrl = Annotated[str, _check(normalise_url)]
Proxies = Annotated[tuple[Text, ...], ConvertBefore(to_tuple)]
BindAddress = Annotated[str, CheckAfter(_check_storable), _check(parse_bind_address)]
"""Where to listen; see `peerd.domain.bind_address`."""
BindAddresses = Annotated[
    tuple[BindAddress, ...],
    Meta(min_length=1, max_length=20),
    _check(lambda values: len(set(values)) == len(values), "names one of them twice"),
    ConvertBefore(to_tuple),
]
FileMode = Annotated[int, Meta(ge=0, le=0o777), ConvertBefore(_to_file_mode)]
Name = Annotated[
    str,
    _check(
        re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,190}").fullmatch,
        "is not a name; use up to 191 letters, digits, '.', '_' and '-', a letter or digit first",
    ),
]
KindNames = Annotated[tuple[Name, ...], Meta(min_length=1), ConvertBefore(to_tuple)]
"""Kinds of worker processes."""
QueueName = Annotated[
    str, _check(QUEUE_NAME.fullmatch, "{} is no queue's name: 1 to 200 of A-Z a-z 0-9 - + / ; . $ _ ( ) : @")
]
QueueNames = Annotated[tuple[QueueName, ...], Meta(min_length=1), ConvertBefore(to_tuple)]
HostName = Annotated[str, _check(_HOST_NAME.fullmatch, "{} is no host's name"), ConvertBefore(lower)]
BucketName = Annotated[
    str, _check(re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]").fullmatch, "{} is no name of a bucket")
]
"""The name of a bucket in an object store."""
ObjectPrefix = Annotated[
    str,
    _check(
        re.compile(r"([A-Za-z0-9._-]{1,100}(/[A-Za-z0-9._-]{1,100}){0,5})?").fullmatch,
        "{} is no prefix: up to six parts of letters, digits, '.', '_' and '-', with slashes between them",
    ),
]
"""The beginning of the names of objects, without slashes at the ends."""
ObjectStoreUrl = Annotated[str, CheckAfter(_check_object_store_url)]
HostNames = Annotated[
    tuple[Annotated[str, _check(_HOST_NAME_OR_ADDRESS.fullmatch, "{} is no host's name or address")], ...],
    Meta(max_length=100),
    ConvertBefore(
        lambda value: tuple(lower(one) for one in to_tuple(value)) if isinstance(value, str | list) else value
    ),
]
"""Names or addresses of hosts, without ports, in lower case; each is compared as a whole."""
HeaderName = Annotated[
    str, _check(re.compile(r"[a-z][a-z0-9-]{0,63}").fullmatch, "{} is no header's name"), ConvertBefore(lower)
]
Arguments = Annotated[Any, _check(lambda value: isinstance(value, list | tuple | Mapping), "must be a list or a table")]
"""Arguments of a function, by position or by name."""
MaskedKeys = Annotated[
    tuple[Annotated[Text, Meta(min_length=1, max_length=200)], ...], Meta(max_length=100), ConvertBefore(to_tuple)
]
