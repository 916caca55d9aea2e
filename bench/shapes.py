"""Shapes: a claim costs the same whatever else is in the table.

Claims on the filled table and on one that holds nothing else take turns, each completed before the next. What a claim
reads and locks is asked of the database, in a transaction that is rolled back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from sqlalchemy.engine import Connection

from bench.databases import BenchDatabase, open_database, register_bench_process
from bench.filling import RowTemplate, insert_rows, unsafe_fast_fill
from bench.floor import connect
from bench.read_counts import read_by
from bench.samples import Shape
from bench.sizes import Sizes
from peerd.store.connection.database import Database
from peerd.store.outcomes import ClaimId, complete
from peerd.store.schema.migrate import migrate
from peerd.store.statements import new_token
from peerd.store.take.claimer import Claimer
from peerd.store.take.claiming import claim

BATCH: Final = 10
WARM: Final = 10
MILLION: Final = 1_000_000
DAY: Final = 86_400
STEPS: Final = (0.001, 0.01, 0.1, 1.0)
"""The done rows come in steps: a claim's time by the size of the table."""

DONE: Final = RowTemplate(
    number=10 * MILLION, values={"status": "'done'", "progress": "1.0"}, moments={"finished_at": 0}
)
OTHERS: Final = {
    "scheduled": RowTemplate(number=MILLION, values={"status": "'scheduled'"}, moments={"start_at": DAY}),
    "pinned to other nodes": RowTemplate(number=MILLION, values={"node_id": "987654"}),
    "in other queues": RowTemplate(number=MILLION, values={"queue": "'other'"}),
    "paused": RowTemplate(number=MILLION, values={"queue": "'paused'"}),
    "of one priority": RowTemplate(number=MILLION, values={}),
}
"""Each alone, and at the end all of them with the done ones."""


def measure(target: BenchDatabase, sizes: Sizes) -> Iterator[Shape]:
    """Fill, claim in turns, take away, and so on."""
    table = ShapedTable(target, target.extra_database("shape"))
    empty = ShapedTable(target, target.extra_database("nothing"))
    try:
        for shape, rows in OTHERS.items():
            table.clear()
            table.fill(_scaled(rows, sizes.shapes))
            yield compare(target, shape, table, empty, sizes.shape_claims)
        table.clear()
        filled = 0
        for step in STEPS:
            more = _scaled(DONE, sizes.shapes * step).number - filled
            filled += more
            table.fill(RowTemplate(number=more, values=DONE.values, moments=DONE.moments))
            yield compare(target, "done", table, empty, sizes.shape_claims)
        for rows in OTHERS.values():
            table.fill(_scaled(rows, sizes.shapes))
        yield compare(target, "all of them", table, empty, sizes.shape_claims)
        table.clear()
    finally:
        table.close()
        empty.close()


def _scaled(rows: RowTemplate, factor: float) -> RowTemplate:
    return RowTemplate(number=max(int(rows.number * factor), 1), values=rows.values, moments=rows.moments)


def compare(target: BenchDatabase, shape: str, table: ShapedTable, empty: ShapedTable, claims: int) -> Shape:
    """Claims on both tables, in turns."""
    rows = table.rows
    for one in (table, empty):
        one.offer((claims + WARM + 2) * BATCH)
        for _ in range(WARM):
            one.claim()
    reads = [read_by(one.database, target.kind, one.claiming()) for one in (table, empty)]
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(claims):
        for one, taken in zip((table, empty), times, strict=True):
            taken.append(one.claim())
    table.forget_offered()
    empty.clear()
    return Shape(
        database=target.name,
        shape=shape,
        rows=rows,
        batch=BATCH,
        milliseconds=tuple(times[0]),
        empty_milliseconds=tuple(times[1]),
        read=reads[0],
        empty_read=reads[1],
    )


class ShapedTable:
    """A database of its own, filled and claimed from.

    Args:
        stage: whose server it is on.
        url: an empty database.
    """

    def __init__(self, target: BenchDatabase, url: str) -> None:
        self._kind = target.kind
        self.database: Database = open_database(url, target.variant.synchronous)
        migrate(self.database)
        self._connection: Any = connect(self.database.url, target.variant.synchronous)
        self._claimer: Claimer = register_bench_process(self.database, "bench", "paused")
        paused = {"mariadb": "true", "postgresql": "true", "sqlite": "1"}[self._kind]
        self._ask("DELETE FROM queues WHERE name = 'paused'")
        self._ask(f"INSERT INTO queues (name, paused) VALUES ('paused', {paused})")
        self._last = 0
        self.rows = 0

    def fill(self, rows: RowTemplate) -> None:
        """Put rows in that are to stay."""
        with unsafe_fast_fill(self._connection, self._kind):
            insert_rows(self._connection, self._kind, rows)
        self.rows += rows.number

    def offer(self, number: int) -> None:
        """Put tasks in that are to be claimed: more urgent than all others."""
        [(last,)] = self._ask("SELECT coalesce(max(id), 0) FROM tasks")
        self._last = int(last)
        insert_rows(self._connection, self._kind, RowTemplate(number=number, values={}))

    def forget_offered(self) -> None:
        """Take those away again."""
        self._ask(f"DELETE FROM tasks WHERE id > {self._last}")

    def clear(self) -> None:
        """Take all away."""
        self._ask("DELETE FROM tasks" if self._kind == "sqlite" else "TRUNCATE TABLE tasks")
        self.rows = 0

    def claiming(self) -> Callable[[Connection], object]:
        """A claim of one batch, as an operation of the store."""
        return lambda connection: claim(connection, self._claimer, token=new_token(), limit=BATCH)

    def claim(self) -> float:
        """Claim a batch and complete it; the milliseconds that the claim took."""
        began = time.perf_counter()
        won = self.database.run_short(claim, self._claimer, token=new_token(), limit=BATCH)
        took = time.perf_counter() - began
        assert len(won.tasks) == BATCH, f"a claim won {len(won.tasks)} of {BATCH} tasks"
        held = {ClaimId(task.id, task.lease): None for task in won.tasks}
        assert not self.database.run_short(complete, self._claimer.process_id, held)
        return took * 1000

    def offer_and_claim(self) -> float:
        """Put one batch in, and claim it; the milliseconds that the claim took."""
        insert_rows(self._connection, self._kind, RowTemplate(number=BATCH, values={}))
        return self.claim()

    def close(self) -> None:
        """Close all connections."""
        self._connection.close()
        self.database.close()

    def _ask(self, statement: str) -> list[Any]:
        cursor = self._connection.cursor()
        cursor.execute(statement)
        return list(cursor.fetchall()) if cursor.description is not None else []
