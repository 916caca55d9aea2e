"""What the functions of both clients send: arguments of Python become messages, checked before anything is sent."""

from __future__ import annotations

import math
from typing import Any, TypedDict

import msgspec

from peerd.domain.errors import InvalidTask
from peerd.domain.task import NON_FINITE_PROBLEM, contains_non_finite
from peerd.domain.units import parse_duration
from peerd.gateway.client.exchange import TakenJob
from peerd.gateway.protocols.json.messages import (
    NOTHING,
    AddJob,
    FailJob,
    GetJob,
    NotifyDone,
    ReleaseJob,
    TouchJob,
)

Duration = str | float
"""Seconds, or text such as ``"10m"``."""
JobOrId = TakenJob | int | None


class JobOptions(TypedDict, total=False):
    """The options of add_job.

    Attributes:
        queue: its queue; ``default`` if it is not given.
        priority: an integer; the larger is taken first, and 10 is the default.
        delay: the job is not given out before; whole seconds, rounded up.
        ttr: it goes back to its queue after that time without a touch; without one, when its connection ends.
        unique: a key: while another job of the queue has it, no job is added.
        unique_for: how long it is taken: ``unfinished``, the default, ``forever``, or a duration.
        max_attempts: so many failures are its end; without it, none is.
        name: of the handler, if Python workers are to run it.
    """

    queue: str
    priority: int
    delay: Duration
    ttr: Duration | None
    unique: str | None
    unique_for: Duration
    max_attempts: int | None
    name: str


def add_job_message(job: object, options: JobOptions) -> AddJob:
    """Put a job.

    Raises:
        InvalidTask: the job is not JSON.
        ValueError: an option is none that a job can have.
    """
    given: dict[str, Any] = dict(options)
    for name in ("delay", "ttr"):
        if given.get(name) is not None:
            given[name] = _whole_seconds(given[name])
    if given.get("unique_for", "forever") not in ("unfinished", "forever"):
        given["unique_for"] = parse_duration(given["unique_for"])
    return AddJob(job=msgspec.Raw(_json_of("job", job)), **given)


def get_job_message(queues: tuple[str, ...], wait: Duration) -> GetJob:
    """Take the best job of these queues; of ``default`` where none is named."""
    return GetJob(queues=queues or None, wait=parse_duration(wait))


def notify_message(job: JobOrId, result: object) -> NotifyDone:
    """Report a job done; a result other than None is kept with it."""
    given = NOTHING if result is None else msgspec.Raw(_json_of("result", result))
    return NotifyDone(job_id=_id_of(job), result=given)


def touch_message(job: JobOrId, progress: float | None, note: str | None) -> TouchJob:
    """Renew the time limit of a job."""
    return TouchJob(job_id=_id_of(job), progress=progress, note=note)


def fail_message(job: JobOrId, reason: str, retry: Duration | None) -> FailJob:
    """End an attempt without success; ``retry`` is False or a duration."""
    after: Any = retry if retry is None or retry is False else parse_duration(retry)
    return FailJob(job_id=_id_of(job), reason=reason or None, retry=after)


def release_message(job: JobOrId, delay: Duration) -> ReleaseJob:
    """Give a job back."""
    return ReleaseJob(job_id=_id_of(job), delay=_whole_seconds(delay))


def _json_of(what: str, value: object) -> bytes:
    try:
        if contains_non_finite(value):
            raise InvalidTask(what, NON_FINITE_PROBLEM)
        return msgspec.json.encode(value)
    except (TypeError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidTask(what, f"cannot be written as JSON: {error}") from error


def _id_of(job: JobOrId) -> int | None:
    return job.id if isinstance(job, TakenJob) else job


def _whole_seconds(duration: Duration) -> int:
    return math.ceil(parse_duration(duration))
