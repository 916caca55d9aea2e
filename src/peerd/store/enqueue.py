"""Enqueuing: write tasks, one or many, in peerd's own transaction or in the caller's, and with an idempotency key once.

A request that was cut off may have been carried out. Repeated with its idempotency key, it enqueues nothing again and
gets the first answer. The key's row is written in the transaction of the enqueue; a competitor with the same key waits
for the end of that transaction, and finds the answer, or, after a rollback, no row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import groupby
from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.errors import IdempotencyKeyReused, InvalidTask, NodeNotFound
from peerd.domain.task import NewTask
from peerd.store import unique_keys
from peerd.store.insert import insert_many, insert_one
from peerd.store.schema.tables import idempotency_keys, nodes
from peerd.store.schema.types import MYSQL, seconds_from_now
from peerd.store.statements import DriverConnection, delete_oldest, insert_if_absent, new_token
from peerd.store.tasks.rows import batches

ROWS_IN_AN_INSERT: Final = 1000
ESCAPED_BYTES: Final = (b"\\", b"'", b'"', b"\n", b"\r", b"\0", b"\x1a")
"""Bytes before which the drivers of MySQL send a backslash."""
ALWAYS_ACCEPTED: Final = 500 * 1024
"""Bytes of a body that every server accepts: max_allowed_packet is at least 1 MiB where it was not made smaller."""
KEEP: Final = 86_400.0
"""Seconds for which an answer is kept, as HTTP APIs commonly do."""
KEY: Final = ("id",)


class Enqueued(msgspec.Struct, frozen=True):
    """The result of an enqueue: the task's id, and whether it is new; it is not if its unique key was taken."""

    id: int
    created: bool = True


def enqueue(connection: Connection, new: NewTask) -> Enqueued:
    """Write one task.

    Args:
        connection: in a transaction, of peerd or of the caller.
        new: the task; it was checked when it was made.

    Raises:
        NodeNotFound: it is pinned to a node that was never registered.
    """
    return enqueue_many(connection, [new])[0]


def enqueue_many(connection: Connection, new: Sequence[NewTask]) -> list[Enqueued]:
    """Write many tasks; the results are in the order of the tasks.

    Tasks with unique keys are written one by one, in the order of their keys, so that two bulk enqueues of the same
    keys do not wait for each other; all others in statements of many rows.

    Raises:
        NodeNotFound: see `enqueue`; nothing is written then.
        InvalidTask: a body is larger than the server takes.
    """
    node_ids = _node_ids(connection, {task.node for task in new if task.node is not None})
    _check_packet_size(connection, new)
    results: dict[int, Enqueued] = {}
    for indexes in _group_by_shape(new):
        for batch in batches(indexes, lambda index: _size(new[index]), rows=ROWS_IN_AN_INSERT):
            ids = insert_many(connection, [new[index] for index in batch], node_ids)
            results.update(zip(batch, map(Enqueued, ids), strict=True))
    keyed = [index for index, task in enumerate(new) if task.unique_key is not None]
    for index in sorted(keyed, key=lambda index: (new[index].queue, new[index].unique_key or "")):
        results[index] = _enqueue_unique(connection, new[index], node_ids)
    return [results[index] for index in range(len(new))]


def is_one_statement(new: NewTask) -> bool:
    """Whether one INSERT is all that writing it takes."""
    return new.unique_key is None and new.node is None and _size(new) <= ALWAYS_ACCEPTED


def enqueue_one(connection: Connection, new: NewTask) -> Enqueued:
    """Write one task for which `is_one_statement` holds; a short operation."""
    return Enqueued(insert_one(DriverConnection(connection), new, {}))


def _group_by_shape(new: Sequence[NewTask]) -> Iterable[Sequence[int]]:
    """The indexes of tasks without unique keys, grouped by which of their times are given.

    Each group is a statement of its own, because a column that is left out takes its default.
    """
    groups: dict[tuple[bool, ...], list[int]] = defaultdict(list)
    for index, task in enumerate(new):
        if task.unique_key is None:
            groups[_given_times(task) if task.has_times else ()].append(index)
    return groups.values()


def _size(task: NewTask) -> int:
    return len(task.body or "") + len(task.body_bytes or b"")


def _check_packet_size(connection: Connection, new: Sequence[NewTask]) -> None:
    """Refuse a body for which MySQL would close the connection, which looks as if the server had gone away."""
    large = [task for task in new if _size(task) > ALWAYS_ACCEPTED]
    if not large or connection.dialect.name not in MYSQL:
        return
    limit = int(connection.execute(sa.text("SELECT @@max_allowed_packet")).scalar_one())
    for task in large:
        body = (task.body or "").encode() + (task.body_bytes or b"")
        size = len(body) + sum(body.count(byte) for byte in ESCAPED_BYTES)
        if size > limit - 64 * 1024:
            raise InvalidTask(
                "body",
                f"{size} bytes in a statement, more than the server takes: its max_allowed_packet is {limit}; "
                "raise that, or keep the data elsewhere and enqueue its address",
            )


def _enqueue_unique(connection: Connection, task: NewTask, node_ids: Mapping[str, int]) -> Enqueued:
    assert task.unique_key is not None
    token = new_token()
    holder = unique_keys.acquire_key(connection, task.queue, task.unique_key, token, task.unique_for)
    if holder is not None:
        return Enqueued(holder, created=False)
    task_id = insert_one(connection, task, node_ids)
    unique_keys.assign_key(connection, task.queue, task.unique_key, task_id)
    return Enqueued(task_id)


def _node_ids(connection: Connection, names: set[str]) -> dict[str, int]:
    if not names:
        return {}
    known = {row.name: row.id for row in connection.execute(sa.select(nodes.c.name, nodes.c.id))}
    for name in sorted(names - set(known)):
        raise NodeNotFound(name, sorted(known))
    return {name: known[name] for name in names}


# ---------------------------------------------------------------- idempotency


def enqueue_once(connection: Connection, key: str, new: Sequence[NewTask], *, owner: str = "") -> list[Enqueued]:
    """Write tasks in the caller's transaction, unless a request with this key has done so.

    Args:
        connection: in a transaction of its own.
        key: chosen by the client; any text.
        new: the tasks.
        owner: of the key; the same text is another key for another owner.

    Raises:
        IdempotencyKeyReused: the key came with other tasks before.
    """
    untraced = [msgspec.structs.replace(one, trace_context=None) for one in new]  # each repetition has its own span
    own = {
        "id": _digest([owner, key] if owner else key),
        "request": _digest(untraced),
        "token": new_token(),
    }
    insert_if_absent(connection, idempotency_keys, [own], key=KEY)
    is_key = idempotency_keys.c.id == own["id"]
    columns = (idempotency_keys.c.token, idempotency_keys.c.request, idempotency_keys.c.answer)
    row = connection.execute(sa.select(*columns).where(is_key).with_for_update()).one()
    if row.request != own["request"]:
        raise IdempotencyKeyReused(key)
    if row.token != own["token"]:
        return msgspec.json.decode(row.answer, type=list[Enqueued])
    written = enqueue_many(connection, list(new))
    answer = msgspec.json.encode(written).decode()
    connection.execute(sa.update(idempotency_keys).where(is_key).values(answer=answer))
    return written


def purge_idempotency_keys(connection: Connection, limit: int) -> int:
    """Delete keys that are older than a day."""
    return delete_oldest(connection, idempotency_keys, idempotency_keys.c.created_at, seconds_from_now(-KEEP), limit)


def _digest(value: object) -> str:
    return blake2b(msgspec.json.encode(value), digest_size=16).hexdigest()


# ---------------------------------------------------------------- putting


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
