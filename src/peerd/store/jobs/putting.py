"""Putting jobs: inserts of many clients in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from sqlalchemy.engine import Connection

from peerd.domain.task import NewTask
from peerd.store.enqueue.enqueue import Enqueued, enqueue_many, enqueue_one, is_one_statement


def put(connection: Connection, new: Sequence[NewTask]) -> list[Enqueued]:
    """Write jobs; the results are in their order.

    Jobs that follow one another, without unique keys and with the same kinds of times, are one statement; so ids rise
    in the order of the jobs. A job whose unique key is taken is not written: its result is the job that has the key,
    and says that it was not created.

    Raises:
        NodeNotFound: see `enqueue`; nothing is written then.
        InvalidTask: a body is larger than the server takes.
    """
    if len(new) == 1 and is_one_statement(new[0]):
        return [enqueue_one(connection, new[0])]
    return [one for _, alike in groupby(new, _given_times) for one in enqueue_many(connection, list(alike))]


def _given_times(new: NewTask) -> tuple[bool, ...]:
    return tuple(time is not None for time in (new.start_at, new.start_in, new.finish_at, new.finish_in))
