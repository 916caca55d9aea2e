"""A schedule that is created at run time, from the arguments of a call: the same checks as for peerd.toml."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypedDict, get_args

from peerd.domain.errors import InvalidSchedule, InvalidTask
from peerd.domain.quoting import quoted
from peerd.domain.schedule import Misfire, Overlap, Schedule
from peerd.domain.task import check_text
from peerd.domain.units import parse_duration
from peerd.operate.request import json_text
from peerd.store.schedules import check_storable

ScheduleType = Literal["cluster", "worker"]
"""The types that a schedule may have that was created at run time."""
MAX_NAME_LENGTH: Final = 191
"""Bytes, as in peerd.toml."""
MAX_BODY_LENGTH: Final = 128 * 1024
"""Characters of JSON, as in peerd.toml."""
MAX_TEXT: Final = 200
_CHOICES: Final = {"type": get_args(ScheduleType), "overlap": get_args(Overlap), "misfire": get_args(Misfire)}


class ScheduleFields(TypedDict, total=False):
    """The fields of a schedule that is created at run time; ``queue``, and ``interval``, ``cron`` or ``immediate``.

    Args:
        queue: of the task.
        task: the name of its handler.
        body: any JSON value; of a handler's task, the object of its arguments.
        limit_key: of the task.
        type: ``cluster`` (once for each tick; the default), or ``worker`` (once on each node).
        interval: seconds, or "10m".
        cron: five fields, or six with the seconds first.
        timezone: of ``cron``; UTC without it.
        immediate: tick when the cluster starts, too.
        overlap: ``skip``, ``queue`` or ``allow``.
        misfire: ``skip`` or ``run_once``.
        misfire_grace: seconds that a tick may be late, or "1m".
        jitter: seconds by which ticks are spread, or "5s".
        enabled: whether it ticks.
    """

    queue: str
    task: str
    body: object
    limit_key: str | None
    type: ScheduleType
    interval: str | float | None
    cron: str | None
    timezone: str
    immediate: bool
    overlap: Overlap
    misfire: Misfire
    misfire_grace: str | float
    jitter: str | float
    enabled: bool


def build_schedule(name: str, given: Mapping[str, Any]) -> Schedule:
    """A schedule from the fields of ``[schedules.NAME]``.

    Raises:
        InvalidSchedule: a field is wrong; it is named.

    >>> build_schedule("tidy", {"queue": "jobs", "task": "tidy", "interval": "10m"}).text
    '{"name":"tidy","queue":"jobs","task":"tidy","interval":600.0}'
    """
    _check_name(name)
    known = ScheduleFields.__annotations__
    for field in given:
        if field == "run":
            check_storable(Schedule(name=name, run="-", immediate=True))
        if field not in known:
            raise InvalidSchedule(field, f"there is no such field; there are {', '.join(known)}")
    fields: dict[str, Any] = {
        field: _CHECKS.get(field, _check_flag)(field, value) for field, value in given.items() if value is not None
    }
    try:
        return check_storable(Schedule(name=name, **fields))
    except InvalidTask as error:  # of the task that it enqueues, whose handler is called task here
        raise InvalidSchedule({"name": "task"}.get(error.field, error.field), error.problem) from None


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not 0 < len(name.encode(errors="replace")) <= MAX_NAME_LENGTH:
        raise InvalidSchedule("name", f"{quoted(name)} is not a text of 1 to {MAX_NAME_LENGTH} bytes")
    if not name.isprintable() or name != name.strip():
        raise InvalidSchedule("name", f"{quoted(name)} has characters that cannot be printed, or spaces around it")


def _check_body(field: str, value: object) -> str:
    try:
        text = json_text(field, value)
        check_text(field, text, MAX_BODY_LENGTH)
    except InvalidTask as error:
        raise InvalidSchedule(field, error.problem) from None
    return text


def _check_text(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidSchedule(field, f"{quoted(value)} is not text")
    try:
        check_text(field, value, MAX_TEXT)
    except InvalidTask as error:
        raise InvalidSchedule(field, error.problem) from None
    return value


def _check_choice(field: str, value: object) -> object:
    choices = _CHOICES[field]
    if value not in choices:
        raise InvalidSchedule(field, f"{quoted(value)} is none of {', '.join(map(repr, choices))}")
    return value


def _check_flag(field: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidSchedule(field, f"{quoted(value)} is neither true nor false")
    return value


def _check_duration(field: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidSchedule(field, f"{quoted(value)} is no duration: give seconds, or text such as '10m'")
    try:
        return parse_duration(value)
    except ValueError as error:
        raise InvalidSchedule(field, str(error)) from None


_CHECKS: Final[dict[str, Callable[[str, object], Any]]] = {
    **dict.fromkeys(("queue", "task", "limit_key", "cron", "timezone"), _check_text),
    **dict.fromkeys(_CHOICES, _check_choice),
    **dict.fromkeys(("interval", "misfire_grace", "jitter"), _check_duration),
    "body": _check_body,
}
"""By the field; all others are true or false."""
