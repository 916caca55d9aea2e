"""Values of the tables ``tasks`` and ``attempts``: a row that was read (`Task`), and one to be written (`NewTask`)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import Any, Final

import msgspec

from peerd.domain.errors import InvalidTask
from peerd.domain.lifecycle import FINISHED, Status
from peerd.domain.quoting import quoted

QUEUE_NAME: Final = re.compile(r"[A-Za-z0-9+/;.$_():@][A-Za-z0-9\-+/;.$_():@]{0,199}")
"""The name of a queue: as of a beanstalkd tube, and with ':' and '@'."""
NAME_LIMIT: Final = 200
EACH_KEY: Final = "*"
"""Stands for each limit_key of a queue in a limit; it is no limit_key itself."""
BODY_LIMIT: Final = 64 * 1024 * 1024
"""Bytes; MariaDB's default max_allowed_packet is 16 MiB, so a server may refuse earlier."""
JSON_EXAMPLE: Final = '{"source": "a.mp4", "passes": 2}'
"""An example of a body, for error texts."""
DEFAULT_PRIORITY: Final = 10
PRIORITY_RANGE: Final = (-(2**63) + 1, 2**63 - 1)
EARLIEST: Final = datetime(1971, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(2038, 1, 1, tzinfo=UTC)
"""MySQL's TIMESTAMP ends on 2038-01-19; one limit for every database, so that tasks can move between them."""
SPAN_LIMIT: Final = 10 * 365 * 86400.0
"""Seconds; a longer span is a mistake, or would end after `LATEST`."""
LARGEST_CLIENT_SECONDS: Final = 2**32 - 1
"""The largest number of seconds that a queue client can give: an unsigned number of 32 bits."""
NON_FINITE_PROBLEM: Final = "holds inf or nan, which JSON does not have"


class Task(msgspec.Struct, frozen=True, dict=True):
    """A row of the table ``tasks``. Times are aware, in UTC; durations are in seconds.

    ``deadline_at`` is not None exactly while a queue client holds the task; it has ``ttr`` seconds after each touch.
    ``delay`` is the last one that a queue client gave, in seconds; the counters after it are None in place of 0. Tasks
    that a worker has claimed come without these, which no handler needs. ``bulk_id`` is the last bulk action on it.
    """

    id: int
    queue: str
    name: str
    body: str | None
    body_bytes: bytes | None
    status: Status
    priority: int
    attempts: int
    max_attempts: int | None
    failures: int
    crashes: int
    node_id: int | None
    start_at: datetime | None
    finish_at: datetime | None
    timeout: float | None
    unique_key: str | None
    limit_key: str | None
    lease: int
    worker_node_id: int | None
    process_id: int | None
    worker_started_at: datetime | None
    checked_at: datetime | None
    progress: float | None
    progress_note: str | None
    result: str | None
    error: str | None
    finished_at: datetime | None
    trace_context: str | None
    created_at: datetime
    updated_at: datetime
    ttr: int | None = None
    deadline_at: datetime | None = None
    delay: int | None = None
    reserves: int | None = None
    timeouts: int | None = None
    releases: int | None = None
    buries: int | None = None
    kicks: int | None = None
    bulk_id: int | None = None

    @cached_property
    def json(self) -> object:
        """The body as a JSON value; None where it is no JSON, as in the original."""
        try:
            return json.loads(self.body if self.body is not None else self.body_bytes or b"null")
        except (ValueError, RecursionError):
            return None

    @property
    def attempts_made(self) -> int:
        """With the one that runs or has succeeded, which the column does not count."""
        return self.attempts + (self.status in {Status.WORKING, Status.DONE})

    @property
    def finished(self) -> bool:
        """Whether its status is done, dead or canceled."""
        return self.status in FINISHED


class NewTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task to be enqueued. Raises InvalidTask, which names the field and the cause, before anything is written.

    >>> NewTask(queue="video", name="transcode", body='{"source": "a.mp4"}').priority
    10
    >>> NewTask(queue="no spaces")
    Traceback (most recent call last):
    peerd.domain.errors.InvalidTask: queue: 'no spaces' is not 1 to 200 of A-Z a-z 0-9 - + / ; . $ _ ( ) : @
    """

    queue: str
    name: str = ""
    body: str | None = None
    body_bytes: bytes | None = None
    priority: int = DEFAULT_PRIORITY
    max_attempts: int | None = None
    node: str | None = None  # the name of the only node that may run it
    start_at: datetime | None = None
    start_in: float | None = None  # seconds from now, by the database's clock
    finish_at: datetime | None = None
    finish_in: float | None = None
    timeout: float | None = None
    unique_key: str | None = None
    unique_for: str | float = "unfinished"  # ``"unfinished"``, ``"forever"``, or seconds
    limit_key: str | None = None  # the key by which limits and turns count it
    trace_context: str | None = None
    ttr: int | None = None  # seconds that a queue client may hold it without a touch; tasks of queue clients have one
    delay: int | None = None  # seconds, as a queue client gave them; it starts then, or in ten years if that is earlier

    def __post_init__(self) -> None:
        if len(self.queue) > NAME_LIMIT or not _is_queue_name(self.queue):
            raise InvalidTask("queue", f"{quoted(self.queue)} is not 1 to 200 of A-Z a-z 0-9 - + / ; . $ _ ( ) : @")
        check_text("name", self.name, NAME_LIMIT)
        check_text("body", self.body, BODY_LIMIT)
        check_text("unique", self.unique_key, NAME_LIMIT)
        if self.unique_key == "":
            raise InvalidTask("unique", "an empty key is no key; leave it out")
        if self.limit_key is not None:
            check_limit_key(self.limit_key)
        check_text("trace_context", self.trace_context, 512)
        if self.body_bytes is not None and len(self.body_bytes) > BODY_LIMIT:
            raise InvalidTask("body_bytes", f"{len(self.body_bytes)} bytes are more than {BODY_LIMIT}")
        low, high = PRIORITY_RANGE
        if not low <= self.priority <= high:
            raise InvalidTask("priority", f"{quoted(self.priority)} is not between {low} and {high}")
        if self.max_attempts is not None and not 1 <= self.max_attempts <= 2**31 - 1:
            raise InvalidTask("max_attempts", f"{quoted(self.max_attempts)} is not a number from 1 to {2**31 - 1}")
        if self.timeout is not None and not 0 < self.timeout < float("inf"):
            raise InvalidTask("timeout", f"{self.timeout} is not a number of seconds above 0")
        self._check_client_seconds()
        if self.has_times:
            self._check_times()
        scope = self.unique_for
        is_span = isinstance(scope, int | float) and 0 < scope < SPAN_LIMIT
        if not is_span and scope not in ("unfinished", "forever"):
            raise InvalidTask("unique_for", f"{quoted(scope)} is not 'unfinished', 'forever' or a duration above 0")

    def _check_client_seconds(self) -> None:
        """Check ttr and delay, and give a task with a delay its start."""
        if self.ttr is not None:
            check_client_seconds("ttr", self.ttr, least=1)
        if self.delay is None:
            return
        check_client_seconds("delay", self.delay)
        if self.delay:
            start_in = delay_until_start(self.delay)
            if self.start_at is not None or self.start_in not in (None, start_in):
                raise InvalidTask("delay", "give delay or a start time, not both")
            msgspec.structs.force_setattr(self, "start_in", start_in)

    @property
    def has_times(self) -> bool:
        """Whether it has a start or a finish time."""
        return any(time is not None for time in (self.start_at, self.start_in, self.finish_at, self.finish_in))

    def _check_times(self) -> None:
        check_moment("start", self.start_at, self.start_in)
        check_moment("finish", self.finish_at, self.finish_in)
        if self.start_at is not None and self.finish_at is not None and self.finish_at <= self.start_at:
            raise InvalidTask("finish_at", f"{self.finish_at} is not after start_at, {self.start_at}")
        if self.start_in and self.finish_in is not None and self.finish_in <= self.start_in:
            raise InvalidTask("finish_in", f"{self.finish_in:g} s is not after start_in, {self.start_in:g} s")


@lru_cache(maxsize=256)
def _is_queue_name(name: str) -> bool:
    return QUEUE_NAME.fullmatch(name) is not None


def check_text(field: str, value: str | None, limit: int) -> None:
    """Raise InvalidTask for a text that a database would refuse, cut or change.

    That is one of more than ``limit`` bytes of UTF-8, or with a NUL (PostgreSQL), or with half of a surrogate pair.
    """
    if value is None:
        return
    try:
        size = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError:
        raise InvalidTask(field, "holds half of a surrogate pair, which is not text") from None
    if size > limit:
        raise InvalidTask(field, f"{size} bytes are more than {limit}")
    if "\x00" in value:
        remedy = "use body_bytes" if field == "body" else "leave it out"
        raise InvalidTask(field, f"holds a NUL character, which not every database can store; {remedy}")


def check_limit_key(key: str) -> None:
    """Raise InvalidTask for a limit_key that no task can have; the database refuses it too.

    >>> check_limit_key("customer 7")
    >>> check_limit_key("*")
    Traceback (most recent call last):
    peerd.domain.errors.InvalidTask: limit_key: '*' stands for each key of a queue; a task needs one of its own
    """
    check_text("limit_key", key, NAME_LIMIT)
    if key == "":
        raise InvalidTask("limit_key", "an empty key is no key; leave it out")
    if key == EACH_KEY:
        raise InvalidTask("limit_key", "'*' stands for each key of a queue; a task needs one of its own")


def check_client_seconds(field: str, seconds: int, least: int = 0) -> None:
    """Raise InvalidTask for a number of seconds that no queue client can give.

    >>> check_client_seconds("ttr", 0, least=1)
    Traceback (most recent call last):
    peerd.domain.errors.InvalidTask: ttr: 0 is not from 1 to 4294967295 seconds
    """
    if not least <= seconds <= LARGEST_CLIENT_SECONDS:
        raise InvalidTask(field, f"{quoted(seconds)} is not from {least} to {LARGEST_CLIENT_SECONDS} seconds")


def delay_until_start(delay: int) -> float:
    """Seconds until a task starts to which a queue client gave a delay; it may be longer than what a database holds.

    >>> delay_until_start(60), delay_until_start(2**32 - 1) < SPAN_LIMIT
    (60.0, True)
    """
    return min(float(delay), SPAN_LIMIT - 1.0)


def check_moment(field: str, moment: datetime | None, seconds: float | None) -> None:
    """Raise InvalidTask for a time that is naive, given twice, or outside of the range of any database."""
    if moment is not None and seconds is not None:
        raise InvalidTask(f"{field}_at", f"give {field}_at or {field}_in, not both")
    if moment is not None:
        if moment.tzinfo is None:
            raise InvalidTask(f"{field}_at", f"{moment} has no time zone; use an aware datetime")
        if not EARLIEST <= moment < LATEST:
            raise InvalidTask(f"{field}_at", f"{moment} is not between {EARLIEST:%Y-%m-%d} and {LATEST:%Y-%m-%d}")
    if seconds is not None and not 0 <= seconds < SPAN_LIMIT:
        raise InvalidTask(f"{field}_in", f"{seconds} is not a number of seconds from 0 to ten years")


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table ``attempts``: an attempt without success."""

    id: int
    task_id: int
    lease: int
    number: int
    node_id: int | None
    process_id: int | None
    started_at: datetime | None
    ended_at: datetime
    outcome: str
    error: str | None
    traceback: str | None
    cause: str | None


def encode_arguments(arguments: Mapping[str, object]) -> str:
    """The compact JSON text of a handler's arguments.

    Raises InvalidTask for a value that is not JSON, nor a date, UUID, dataclass or struct, which msgspec encodes.

    >>> encode_arguments({"source": "a.mp4", "height": 720})
    '{"source":"a.mp4","height":720}'
    """
    try:
        return msgspec.json.encode(arguments).decode()
    except (TypeError, ValueError, RecursionError, UnicodeEncodeError) as error:
        raise InvalidTask("body", f"cannot be written as JSON: {error}") from error


def contains_non_finite(value: Any) -> bool:
    """Whether a value for JSON holds inf, -inf or nan, which its encoders would write as null.

    >>> contains_non_finite({"a": [1.5, None]}), contains_non_finite({"a": (0.0, float("nan"))})
    (False, True)
    """
    match value:
        case float():
            return not math.isfinite(value)
        case dict():
            return any(map(contains_non_finite, value.values()))
        case list() | tuple():
            return any(map(contains_non_finite, value))
        case _:
            return False


@dataclass(frozen=True, slots=True)
class Call:
    """The result of ``handler.with_args(…)``: enough to enqueue the task, without the handler's code.

    Args:
        queue: the queue's name.
        name: the handler's name.
        body: the JSON object of its arguments, as text.
        handler: the object that made it, for tests that run it inline; two calls may differ in it and be equal.
        limit_key: the key for limits and turns that the handler computes; the option of an enqueue replaces it.

    >>> Call("video", "look", "{}", handler=print)
    Call(queue='video', name='look', body='{}')
    """

    queue: str
    name: str
    body: str
    handler: object = field(default=None, compare=False, repr=False)
    limit_key: str | None = field(default=None, repr=False)
