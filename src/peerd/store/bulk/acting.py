"""One action on a batch of tasks whose rows are locked."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sqlalchemy.engine import Connection

from peerd.domain.bulk import (
    BulkBury,
    BulkCancel,
    BulkChange,
    BulkDelete,
    BulkKick,
    BulkMove,
    BulkMoveToQueue,
    BulkRetry,
    BulkSnooze,
    TaskAction,
)
from peerd.domain.task import Task
from peerd.store.nodes.nodes import get_node_id
from peerd.store.tasks import effects
from peerd.store.tasks.actions import delete_rows


def act(connection: Connection, action: TaskAction, locked: Sequence[Task], bulk_id: int) -> effects.Refusals:
    """Do it to all of them, as this bulk action; the tasks that were refused.

    Raises:
        NodeNotFound: no node has the name of the action any more.
    """
    match action:
        case BulkRetry():
            return effects.retry_tasks(connection, locked, bulk_id=bulk_id)
        case BulkCancel(reason):
            effects.cancel_tasks(connection, locked, reason, bulk_id=bulk_id)
        case BulkDelete():
            delete_rows(connection, list(locked))
        case BulkSnooze(seconds):
            effects.snooze_tasks(connection, locked, seconds, bulk_id=bulk_id)
        case BulkMove(node):
            node_id = None if node is None else get_node_id(connection, node)
            effects.move_tasks(connection, locked, node_id, node, bulk_id=bulk_id)
        case BulkMoveToQueue(queue):
            return effects.move_tasks_to_queue(connection, locked, queue, bulk_id=bulk_id)
        case BulkChange():
            effects.change_tasks(connection, locked, changed_values(action), bulk_id=bulk_id)
        case BulkBury():
            effects.bury_tasks(connection, locked, time.time_ns() // 1000, bulk_id=bulk_id)
        case BulkKick():
            effects.kick_tasks(connection, locked, bulk_id=bulk_id)
    return {}


def changed_values(change: BulkChange) -> dict[str, object]:
    """The columns that a change writes.

    >>> changed_values(BulkChange(priority=20))
    {'priority': 20}
    """
    values: dict[str, object] = {} if change.priority is None else {"priority": change.priority}
    return values if change.body is None else values | {"body": change.body, "body_bytes": None}


def makes_claimable(action: TaskAction) -> bool:
    """Whether workers may find tasks to claim after it."""
    return isinstance(action, BulkRetry | BulkMove | BulkMoveToQueue | BulkChange | BulkKick)
