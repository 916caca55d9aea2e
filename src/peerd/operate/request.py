"""What an application asks to be enqueued, as the store wants it. Pure: refused here, before anything is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypedDict, TypeVar, Unpack

import msgspec

from peerd.domain.call import Call
from peerd.domain.duration import parse_duration
from peerd.domain.errors import InvalidTask
from peerd.domain.quoting import quoted
from peerd.domain.task import NON_FINITE_PROBLEM, NewTask, contains_non_finite

T = TypeVar("T")
Duration = str | float
"""Seconds, or text such as ``"10m"``."""


class EnqueueOptions(TypedDict, total=False):
    """The options of every kind of enqueue; None is as if it were not given.

    ``name``, ``body``, ``text`` and ``bytes`` go with a queue's name only: a `Call` brings its own. Of the last three
    at most one: ``body`` is any JSON value and is written as JSON; ``text`` is stored as it is; ``bytes`` are binary.
    """

    name: str | None
    body: object
    text: str | None
    bytes: bytes | None
    priority: int | None
    start_at: datetime | None
    start_in: Duration | None
    finish_at: datetime | None
    finish_in: Duration | None
    node: str | None
    max_attempts: int | None
    timeout: Duration | None
    unique: str | None
    unique_for: Duration | None
    limit_key: str | None
    trace_context: str | None


RAW_TASK_OPTIONS: Final = ("name", "body", "text", "bytes")
_OPTIONS: Final = tuple(EnqueueOptions.__annotations__)


def new_task(what: Call | str, **options: Unpack[EnqueueOptions]) -> NewTask:
    """The task of an enqueue.

    Args:
        what: a call, made by ``handler.with_args(…)``; or a queue's name.
        options: see `EnqueueOptions`.

    Raises:
        InvalidTask: the error names the option and what is allowed.
        TypeError: an option that does not exist, or something else than a call or a name.

    >>> new_task("legacy", name="resize", body={"any": "json"}, start_in="10m").body
    '{"any":"json"}'
    """
    return new_tasks([what], **options)[0]


def new_tasks(what: Iterable[Call | str], **options: Unpack[EnqueueOptions]) -> list[NewTask]:
    """`new_task`, for each of several calls with the same options, which are looked at once."""
    given = {option: value for option, value in options.items() if value is not None}
    if unknown := sorted(set(given) - set(_OPTIONS)):
        raise TypeError(f"there is no option {quoted(unknown[0])} of enqueue: there are {', '.join(_OPTIONS)}")
    common = _time_options(given) | _other_options(given) if given else {}
    return [_make_task(one, given, common) for one in what]


def _make_task(what: Call | str, given: Mapping[str, Any], common: Mapping[str, Any]) -> NewTask:
    if isinstance(what, Call):
        for option in RAW_TASK_OPTIONS if given else ():
            if option in given:
                raise InvalidTask(option, f"the call of {what.name} brings its own; leave it out")
        own = {"limit_key": what.limit_key} if what.limit_key is not None else {}
        return NewTask(queue=what.queue, name=what.name, body=what.body, **{**own, **common})
    if isinstance(what, str):
        return NewTask(queue=what, name=_text(given, "name") or "", **_body(given), **common)
    raise TypeError(
        f"{quoted(what)} is neither a queue's name nor a call: write handler.with_args(…), or the name of a queue"
    )


def _body(given: Mapping[str, Any]) -> dict[str, Any]:
    bodies = [option for option in RAW_TASK_OPTIONS[1:] if option in given]
    if len(bodies) > 1:
        raise InvalidTask(bodies[1], f"give {bodies[0]} or {bodies[1]}, not both")
    if "body" in given:
        return {"body": json_text("body", given["body"])}
    if "bytes" in given:
        if not isinstance(given["bytes"], bytes | bytearray | memoryview):
            raise InvalidTask("bytes", f"{type(given['bytes']).__name__} is not bytes; text goes into text=")
        return {"body_bytes": bytes(given["bytes"])}
    return {"body": _text(given, "text")}


def json_text(field: str, value: object) -> str:
    """The JSON text of a value.

    Raises:
        InvalidTask: it cannot be written as JSON.

    >>> json_text("body", [1, "ä"])
    '[1,"ä"]'
    """
    try:
        text = msgspec.json.encode(value).decode()
        if "null" in text and contains_non_finite(msgspec.to_builtins(value)):
            raise InvalidTask(field, NON_FINITE_PROBLEM)
    except InvalidTask:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidTask(field, f"cannot be written as JSON: {error}") from error
    return text


def _time_options(given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "start_at": _datetime(given, "start_at"),
        "start_in": _seconds(given, "start_in"),
        "finish_at": _datetime(given, "finish_at"),
        "finish_in": _seconds(given, "finish_in"),
    }


def _other_options(given: Mapping[str, Any]) -> dict[str, Any]:
    other = {
        "node": _text(given, "node"),
        "max_attempts": _integer(given, "max_attempts"),
        "timeout": _seconds(given, "timeout"),
        "unique_key": _text(given, "unique"),
        "trace_context": _text(given, "trace_context"),
    }
    if "priority" in given:
        other["priority"] = _integer(given, "priority")
    if "limit_key" in given:
        other["limit_key"] = _text(given, "limit_key")
    if "unique_for" in given:
        if "unique" not in given:
            raise InvalidTask("unique_for", "says how long a key holds: give unique too")
        other["unique_for"] = _unique_scope(given)
    return other


def _unique_scope(given: Mapping[str, Any]) -> str | float | None:
    scope = given["unique_for"]
    return scope if scope in ("unfinished", "forever") else _seconds(given, "unique_for")


def _text(given: Mapping[str, Any], option: str) -> str | None:
    return _checked_option(given, option, str, "text")


def _integer(given: Mapping[str, Any], option: str) -> int | None:
    if isinstance(given.get(option), bool):
        raise InvalidTask(option, f"{quoted(given[option])} is not a whole number")
    return _checked_option(given, option, int, "a whole number")


def _datetime(given: Mapping[str, Any], option: str) -> datetime | None:
    return _checked_option(given, option, datetime, f"a datetime; a duration goes into {option.replace('_at', '_in')}")


def _checked_option(given: Mapping[str, Any], option: str, kind: type[T], words: str) -> T | None:
    value = given.get(option)
    if value is None or isinstance(value, kind):
        return value
    raise InvalidTask(option, f"{quoted(value)} is not {words}")


def _seconds(given: Mapping[str, Any], option: str) -> float | None:
    if option not in given:
        return None
    try:
        return parse_duration(given[option])
    except ValueError as error:
        raise InvalidTask(option, str(error)) from None
