"""Enqueuing: write tasks, one or many, in peerd's own transaction or in the caller's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.errors import InvalidTask, NodeNotFound
from peerd.domain.task import NewTask
from peerd.store import unique
from peerd.store.claim import new_token
from peerd.store.insert import insert_alike, row_of
from peerd.store.rows import batches_by_size
from peerd.store.tables import nodes
from peerd.store.types import MYSQL

ROWS_IN_AN_INSERT: Final = 1000
ALWAYS_TAKEN: Final = 500 * 1024
"""Bytes of a body that no server refuses: max_allowed_packet is at least 1 MiB where it was not made smaller."""


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
    ids: dict[int, int] = {}
    for alike in groups.values():
        inserted = insert_alike(connection, [row_of(task, node_ids, token) for _, task in alike], token)
        ids.update((place, task_id) for (place, _), task_id in zip(alike, inserted, strict=True))
    return [ids[place] for place in range(len(new))]


def _shape(task: NewTask) -> tuple[bool, ...]:
    return tuple(moment is not None for moment in (task.start_at, task.start_in, task.finish_at, task.finish_in))
