"""Enqueuing: write tasks, one or many, in peerd's own transaction or in the caller's."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection, Dialect

from peerd.domain.errors import InvalidTask, NodeNotFound
from peerd.domain.lifecycle import Status
from peerd.domain.task import NewTask
from peerd.store import unique
from peerd.store.claim import new_token
from peerd.store.clock import now, seconds_from_now
from peerd.store.rows import batches_by_size, becomes, select_by_id
from peerd.store.tables import nodes, tasks
from peerd.store.types import MYSQL, Instant

ROWS_IN_AN_INSERT: Final = 1000
ALWAYS_TAKEN: Final = 500 * 1024
"""Bytes of a body that no server refuses: max_allowed_packet is at least 1 MiB where it was not made smaller."""
INSTANT: Final = Instant()
NAMED_PLACE: Final = re.compile(r"%\((\w+)\)s")


class Enqueued(msgspec.Struct, frozen=True):
    """What an enqueue answers: the task's id, and whether it is new (not so, when its unique key was taken)."""

    id: int
    created: bool = True


def enqueue(connection: Connection, new: NewTask) -> Enqueued:
    """Write one task.

    Args:
        connection: in a transaction, of ours or of the caller.
        new: the task; it was checked when it was made.

    Raises:
        NodeNotFound: it is pinned to a node that no one has ever registered.
    """
    return enqueue_many(connection, [new])[0]


def enqueue_many(connection: Connection, new: Sequence[NewTask]) -> list[Enqueued]:
    """Write many tasks; the answers stand in the order of what was given.

    Tasks with unique keys are written one by one, in the order of their keys, so that two bulk enqueues of the same
    keys do not wait for each other; all others in statements of many rows.

    Raises:
        NodeNotFound: see `enqueue`; nothing is written then.
        InvalidTask: a body is larger than the server takes.
    """
    node_ids = _node_ids(connection, {task.node for task in new if task.node is not None})
    _refuse_what_the_server_would(connection, new)
    answers: dict[int, Enqueued] = {}
    plain = [(place, task) for place, task in enumerate(new) if task.unique_key is None]
    for batch in batches_by_size(plain, lambda pair: _size(pair[1]), rows=ROWS_IN_AN_INSERT):
        ids = _insert(connection, [task for _, task in batch], node_ids)
        answers.update((place, Enqueued(task_id)) for (place, _), task_id in zip(batch, ids, strict=True))
    keyed = [(place, task) for place, task in enumerate(new) if task.unique_key is not None]
    for place, task in sorted(keyed, key=lambda pair: (pair[1].queue, pair[1].unique_key or "")):
        answers[place] = _enqueue_unique(connection, task, node_ids)
    return [answers[place] for place in range(len(new))]


def _size(task: NewTask) -> int:
    return len(task.body or "") + len(task.body_bytes or b"")


def _refuse_what_the_server_would(connection: Connection, new: Sequence[NewTask]) -> None:
    """MySQL ends the connection of whoever sends too large a statement, which looks as if it had gone away."""
    large = [task for task in new if _size(task) > ALWAYS_TAKEN]
    if not large or connection.dialect.name not in MYSQL:
        return
    limit = int(connection.execute(sa.text("SELECT @@max_allowed_packet")).scalar_one())
    for task in large:
        size = _size_in_a_statement(task)
        if size > limit - 64 * 1024:
            raise InvalidTask(
                "body",
                f"{size} bytes in a statement, more than the server takes: its max_allowed_packet is {limit}; "
                "raise that, or keep the data elsewhere and enqueue its address",
            )


def _size_in_a_statement(task: NewTask) -> int:
    """Bytes that the drivers send: the body in UTF-8, with a backslash before what they escape."""
    whole = (task.body or "").encode() + (task.body_bytes or b"")
    return len(whole) + sum(whole.count(byte) for byte in (b"\\", b"'", b'"', b"\n", b"\r", b"\0", b"\x1a"))


def _enqueue_unique(connection: Connection, task: NewTask, node_ids: Mapping[str, int]) -> Enqueued:
    assert task.unique_key is not None
    token = new_token()
    holder = unique.take(connection, task.queue, task.unique_key, token, task.unique_for)
    if holder is not None:
        return Enqueued(holder, created=False)
    [task_id] = _insert(connection, [task], node_ids)
    unique.assign(connection, task.queue, task.unique_key, task_id)
    return Enqueued(task_id)


def _node_ids(connection: Connection, names: set[str]) -> dict[str, int]:
    if not names:
        return {}
    known = {row.name: row.id for row in connection.execute(sa.select(nodes.c.name, nodes.c.id))}
    for name in sorted(names - set(known)):
        raise NodeNotFound(name, sorted(known))
    return {name: known[name] for name in names}


def _insert(connection: Connection, new: Sequence[NewTask], node_ids: Mapping[str, int]) -> list[int]:
    """Insert rows; their ids in the same order.

    Rows whose times are given in different ways are different statements, because a column that is left out takes its
    default.
    """
    token = new_token()
    groups: dict[tuple[bool, ...], list[tuple[int, NewTask]]] = defaultdict(list)
    for place, task in enumerate(new):
        groups[_shape(task)].append((place, task))
    insert_alike = _insert_and_look if connection.dialect.name in MYSQL else _insert_returning
    ids: dict[int, int] = {}
    for alike in groups.values():
        inserted = insert_alike(connection, [task for _, task in alike], node_ids, token)
        ids.update((place, task_id) for (place, _), task_id in zip(alike, inserted, strict=True))
    return [ids[place] for place in range(len(new))]


def _shape(task: NewTask) -> tuple[bool, ...]:
    return tuple(moment is not None for moment in (task.start_at, task.start_in, task.finish_at, task.finish_in))


def _insert_returning(
    connection: Connection, alike: Sequence[NewTask], node_ids: Mapping[str, int], token: int
) -> Sequence[int]:
    """PostgreSQL and SQLite: one statement with a place for each value, for all rows."""
    insert = sa.insert(tasks).values(_times(alike[0]))
    rows = [_plain(task, node_ids, token) | _moments(task) for task in alike]
    if connection.dialect.name == "sqlite":  # one writer, rows in their order, ids that only grow
        return sorted(connection.execute(insert.returning(tasks.c.id), rows).scalars())
    in_order = insert.returning(tasks.c.id, sort_by_parameter_order=True)
    return connection.execute(in_order, rows).scalars().all()


def _insert_and_look(
    connection: Connection, alike: Sequence[NewTask], node_ids: Mapping[str, int], token: int
) -> Sequence[int]:
    """MySQL: one statement, whose first id it tells; the others are found by the token that only these rows carry.

    That ids of one statement follow each other without gaps is true of one server in one mode; nothing here needs it.
    """
    rows = [_plain(task, node_ids, token) | _moments(task) for task in alike]
    first: int = connection.exec_driver_sql(*_one_statement(connection.dialect, alike[0], rows)).lastrowid
    if len(rows) == 1:
        return [first]
    mine = (
        sa.select(tasks.c.id)
        .where(tasks.c.id >= first, tasks.c.claim_token == token)
        .order_by(tasks.c.id)
        .limit(len(rows))
    )
    return connection.execute(select_by_id(mine)).scalars().all()


def _one_statement(dialect: Dialect, like: NewTask, rows: Sequence[Mapping[str, Any]]) -> tuple[str, tuple[Any, ...]]:
    """One INSERT of many rows, and its values: the text of one row, repeated.

    SQLAlchemy would compile each of the rows (half a second for a thousand), PyMySQL would send them one by one.
    """
    insert = sa.insert(tasks).inline().values(_times(like))
    compiled = insert.compile(dialect=dialect, column_keys=list(rows[0]))
    head, values, row = str(compiled).partition(" VALUES ")
    names = compiled.positiontup
    if names is None:  # a driver that names its places
        names = NAMED_PLACE.findall(row)
        row = NAMED_PLACE.sub("%s", row)
    given = (rows[place][name] for place in range(len(rows)) for name in names)
    return head + values + ", ".join([row] * len(rows)), tuple(_for_driver(value, dialect) for value in given)


def _for_driver(value: Any, dialect: Dialect) -> Any:
    return INSTANT.process_bind_param(value, dialect) if isinstance(value, datetime) else value


def _plain(task: NewTask, node_ids: Mapping[str, int], token: int) -> dict[str, Any]:
    """The columns that are given as they are."""
    return {
        "queue": task.queue,
        "name": task.name,
        "body": task.body,
        "body_bytes": task.body_bytes,
        "priority": task.priority,
        "max_attempts": task.max_attempts,
        "node_id": None if task.node is None else node_ids[task.node],
        "timeout": task.timeout,
        "unique_key": task.unique_key,
        "trace_context": task.trace_context,
        "claim_token": token,
    }


def _times(like: NewTask) -> dict[str, Any]:
    """The columns that depend on the database's clock, with places for the values of tasks that are like this one.

    Start times ahead make a scheduled task. Whether a moment is ahead is for the database's clock to say.
    """
    values: dict[str, Any] = {}
    if like.start_in is not None:
        starts_in: sa.BindParameter[float] = sa.bindparam("starts_in", type_=sa.Double())
        values["start_at"] = seconds_from_now(starts_in)
        values["status"] = sa.case(
            (starts_in > sa.literal_column("0"), becomes(Status.SCHEDULED)), else_=becomes(Status.PENDING)
        )
    if like.start_at is not None:
        starts_at = sa.bindparam("starts_at", type_=INSTANT)
        values["start_at"] = starts_at
        ahead = sa.cast(starts_at, INSTANT) > now()
        values["status"] = sa.case((ahead, becomes(Status.SCHEDULED)), else_=becomes(Status.PENDING))
    if like.finish_in is not None:
        values["finish_at"] = seconds_from_now(sa.bindparam("finishes_in", type_=sa.Double()))
    if like.finish_at is not None:
        values["finish_at"] = sa.bindparam("finishes_at", type_=INSTANT)
    return values


def _moments(task: NewTask) -> dict[str, Any]:
    """The values for the places that `_times` makes."""
    moments = {
        "starts_in": task.start_in,
        "starts_at": task.start_at,
        "finishes_in": task.finish_in,
        "finishes_at": task.finish_at,
    }
    return {name: value for name, value in moments.items() if value is not None}
