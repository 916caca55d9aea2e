"""Reads the table after each step, and reports the changes."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)


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
    id: int
    task_id: int
    lease: int
    number: int
    outcome: str
    process_id: int | None

    @property
    def claim(self) -> tuple[int, int]:
        return (self.task_id, self.lease)


class Observer:
    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path)
        self.rows: dict[int, ObservedTask] = {}
        self._version = self._data_version()

    def changes(self) -> list[tuple[ObservedTask | None, ObservedTask | None]]:
        """What each task was before the last step, and is now; None where there is no row."""
        version = self._data_version()
        if version == self._version:
            return []
        self._version = version
        before, self.rows = self.rows, {row.id: row for row in self._read("tasks", ObservedTask)}
        both = ((before.get(one), self.rows.get(one)) for one in sorted(before.keys() | self.rows.keys()))
        return [(earlier, later) for earlier, later in both if earlier != later]

    def attempts(self) -> list[ObservedAttempt]:
        return sorted(self._read("attempts", ObservedAttempt), key=lambda one: one.id)

    def is_paused(self, queue: str, now: str) -> bool:
        return self._finds(
            "queues WHERE name = ? AND paused AND (paused_until IS NULL OR paused_until > ?)", queue, now
        )

    def is_on_duty(self, node_id: int) -> bool:
        return self._finds("nodes WHERE id = ? AND incarnation IS NOT NULL AND NOT draining", node_id)

    def _finds(self, what: str, *parameters: object) -> bool:
        return self._connection.execute(f"SELECT 1 FROM {what}", parameters).fetchone() is not None

    def close(self) -> None:
        self._connection.close()

    def _read(self, table: str, row: type[T]) -> list[T]:
        columns = ", ".join(row.__struct_fields__)
        return [row(*found) for found in self._connection.execute(f"SELECT {columns} FROM {table}")]

    def _data_version(self) -> int:
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])
