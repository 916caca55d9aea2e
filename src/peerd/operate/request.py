"""Options of enqueue, checked and made into the tasks that the store writes. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypedDict, TypeVar, Unpack

import msgspec

from peerd.domain.errors import InvalidTask
from peerd.domain.quoting import quoted
from peerd.domain.task import NON_FINITE_PROBLEM, Call, NewTask, contains_non_finite
from peerd.operate import validation

T = TypeVar("T")
Duration = str | float
"""Seconds, or text such as ``"10m"``."""


class EnqueueOptions(TypedDict, total=False):
    """The options of every kind of enqueue; None means unset.

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
    """`new_task`, for each of several calls with the same options, which are checked once."""
    given = {option: value for option, value in options.items() if value is not None}
    if unknown := sorted(set(given) - set(_OPTIONS)):
        raise TypeError(f"there is no option {quoted(unknown[0])} of enqueue: there are {', '.join(_OPTIONS)}")
    common = _common_options(given) if given else {}
    return [_make_task(call, given, common) for call in what]


def _make_task(what: Call | str, given: Mapping[str, Any], common: Mapping[str, Any]) -> NewTask:
    if isinstance(what, Call):
        for option in RAW_TASK_OPTIONS if given else ():
            if option in given:
                raise InvalidTask(option, f"the call of {what.name} brings its own; leave it out")
        own = {"limit_key": what.limit_key} if what.limit_key is not None else {}
        return NewTask(queue=what.queue, name=what.name, body=what.body, **{**own, **common})
    if isinstance(what, str):
        return NewTask(queue=what, name=_text("name", given.get("name", "")), **_body(given), **common)
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
    return {"body": _text("text", given["text"])} if "text" in given else {}


def json_text(field: str, value: object) -> str:
    """The JSON text of a value; raises `InvalidTask`.

    >>> json_text("body", [1, "ä"])
    '[1,"ä"]'
    """
    try:
        text = msgspec.json.encode(value).decode()
        is_finite = "null" not in text or not contains_non_finite(msgspec.to_builtins(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidTask(field, f"cannot be written as JSON: {error}") from error
    if not is_finite:
        raise InvalidTask(field, NON_FINITE_PROBLEM)
    return text


def _text(option: str, value: object) -> str:
    return _checked(option, value, str, "text")


def _integer(option: str, value: object) -> int:
    return _checked(option, value, int, "a whole number")


def _datetime(option: str, value: object) -> datetime:
    return _checked(option, value, datetime, f"a datetime; a duration goes into {option.replace('_at', '_in')}")


def _unique_scope(option: str, value: Any) -> str | float:
    return str(value) if value in ("unfinished", "forever") else validation.seconds(option, value)


def _checked(option: str, value: object, kind: type[T], description: str) -> T:
    if isinstance(value, kind) and not isinstance(value, bool):
        return value
    raise InvalidTask(option, f"{quoted(value)} is not {description}")


_CHECKS: Final[dict[str, Callable[[str, Any], Any]]] = {
    "start_at": _datetime,
    "start_in": validation.seconds,
    "finish_at": _datetime,
    "finish_in": validation.seconds,
    "node": _text,
    "max_attempts": _integer,
    "timeout": validation.seconds,
    "unique": _text,
    "trace_context": _text,
    "priority": _integer,
    "limit_key": _text,
    "unique_for": _unique_scope,
}


def _common_options(given: Mapping[str, Any]) -> dict[str, Any]:
    options = {option: check(option, given[option]) for option, check in _CHECKS.items() if option in given}
    if "unique" in options:
        options["unique_key"] = options.pop("unique")
    elif "unique_for" in options:
        raise InvalidTask("unique_for", "says how long a key holds: give unique too")
    return options
