"""A table of tasks of every kind, full enough that a wrong plan shows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from peerd.store.schema.tables import nodes, tasks

PINNED_TO = 99
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
KINDS: list[tuple[int, dict[str, Any]]] = [
    (9000, {"status": "done", "queue": "q"}),
    (4000, {"status": "scheduled", "queue": "q", "start_at": 3600}),
    (3000, {"status": "pending", "queue": "q", "node_id": PINNED_TO}),
    (3000, {"status": "pending", "queue": "other"}),
    (2000, {"status": "pending", "queue": "q", "limit_key": "a"}),
    (1000, {"status": "pending", "queue": "q", "limit_key": "b"}),
    (1000, {"status": "failure", "queue": "q", "start_at": 3600}),
    (500, {"status": "dead", "queue": "q"}),
    (1500, {"status": "pending", "queue": "q", "finish_at": 7200}),
    (1000, {"status": "buried", "queue": "q", "buried_order": 1}),
    (50, {"status": "pending", "queue": "small"}),
    (100, {"status": "working", "queue": "q", "process_id": 77, "worker_node_id": PINNED_TO, "lease": 1}),
]


def fill(connection: sa.Connection) -> None:
    moment = datetime.now(UTC)
    for number, kind in KINDS:
        values = {
            name: moment + timedelta(seconds=value) if name.endswith("_at") else value for name, value in kind.items()
        }
        times = {"created_at": moment, "updated_at": moment, "finished_at": moment, "checked_at": moment}
        rows = [{**values, **times, "priority": number % 7, "name": "n" * 50} for number in range(number)]
        connection.execute(sa.insert(tasks), rows)


def silence_a_node(connection: sa.Connection, node_id: int) -> None:
    """One to which tasks are pinned."""
    connection.execute(sa.update(nodes).where(nodes.c.id == node_id).values(active=False, checked_at=LONG_AGO))
    connection.execute(sa.update(tasks).where(tasks.c.node_id == PINNED_TO).values(node_id=node_id))
