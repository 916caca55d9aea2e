"""Reads the table after each step, and reports the changes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec


class ObservedTask(msgspec.Struct, frozen=True):
    id: int
    queue: str
    name: str
    status: str
    lease: int
    attempts: int
    max_attempts: int | None
    crashes: int
    node_id: int | None
    process_id: int | None
    worker_node_id: int | None
    start_at: str | None
    finish_at: str | None
    finished_at: str | None
    checked_at: str | None
    unique_key: str | None
    limit_key: str | None
    result: str | None
    created_at: str
    updated_at: str
    ttr: int | None
    deadline_at: str | None
    timeouts: int | None
    releases: int | None

    @property
    def claim(self) -> tuple[int, int]:
        return (self.id, self.lease)


class ObservedAttempt(msgspec.Struct, frozen=True):
    task_id: int
    lease: int
    number: int
    outcome: str
    process_id: int | None


class ObservedChange(msgspec.Struct, frozen=True):
    before: ObservedTask | None
    after: ObservedTask | None

    @property
    def id(self) -> int:
        row = self.after or self.before
        assert row is not None
        return row.id


class Observer:
    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path)
        self.rows: dict[int, ObservedTask] = {}
        self._version = self._data_version()

    def changes(self) -> list[ObservedChange]:
        version = self._data_version()
        if version == self._version:
            return []
        self._version = version
        before, self.rows = self.rows, {row.id: row for row in self._tasks()}
        ids = sorted(before.keys() | self.rows.keys())
        return [
            ObservedChange(before.get(one), self.rows.get(one)) for one in ids if before.get(one) != self.rows.get(one)
        ]

    def attempts(self) -> list[ObservedAttempt]:
        columns = ", ".join(ObservedAttempt.__struct_fields__)
        return [
            ObservedAttempt(*row) for row in self._connection.execute(f"SELECT {columns} FROM attempts ORDER BY id")
        ]

    def is_paused(self, queue: str, now: str) -> bool:
        """Whether a queue is paused at this moment."""
        found = "SELECT 1 FROM queues WHERE name = ? AND paused AND (paused_until IS NULL OR paused_until > ?)"
        return self._connection.execute(found, (queue, now)).fetchone() is not None

    def is_on_duty(self, node_id: int) -> bool:
        found = "SELECT 1 FROM nodes WHERE id = ? AND incarnation IS NOT NULL AND NOT draining"
        return self._connection.execute(found, (node_id,)).fetchone() is not None

    def close(self) -> None:
        self._connection.close()

    def _tasks(self) -> Iterator[ObservedTask]:
        for row in self._connection.execute(f"SELECT {', '.join(ObservedTask.__struct_fields__)} FROM tasks"):
            yield ObservedTask(*row)

    def _data_version(self) -> int:
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])
