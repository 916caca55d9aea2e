"""Writing buckets of ended attempts.

A row counts the attempts of one handler that ended within one bucket of time in one process, so no two processes write
the same row. Its numbers are absolute and only grow, and a write keeps the greater ones: written twice, late, or in
another order, it counts once. The coarser rows are sums of such numbers, and only grow, too. Attempts whose process has
died are added to a row of their own.

The statement's text holds the numbers: a row has more than a hundred, and to bind each of them would take SQLAlchemy
and the drivers longer than the database needs for the statement.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.attempt_totals import BIN_COUNT, OUTCOMES, AttemptTotals, Histogram
from peerd.store.schema.tables import statistics
from peerd.store.schema.types import Instant, now
from peerd.store.statements import insert_if_absent
from peerd.store.statistics.steps import MINUTE, bucket_start, placeholder_of, upsert_of_greater
from peerd.store.tasks.rows import batches, to_whole_number

ROWS_OF_A_STATEMENT: Final = 250
KEY: Final = tuple(column.name for column in statistics.primary_key)
COUNTERS: Final = tuple(column.name for column in statistics.c if column.name not in KEY)
_INSTANT: Final = Instant()
_WAIT_BINS: Final = len(OUTCOMES) + 2
_RUN_SUM: Final = _WAIT_BINS + BIN_COUNT


class BucketRow(NamedTuple):
    """A row of the table: its key, and the attempts of it.

    ``process_id`` 0 is all processes of a node; in a row of a minute, those that have died.
    """

    step: int
    at: datetime
    queue: str
    name: str
    node_id: int
    process_id: int
    totals: AttemptTotals


class LostAttempt(NamedTuple):
    """An attempt whose process has died; the outcome is ``failed``, or ``dead`` as the last one."""

    queue: str
    name: str
    node_id: int
    outcome: str


def write_buckets(connection: Connection, rows: Iterable[BucketRow]) -> int:
    """Write rows; of one that is there already the greater numbers are kept. Returns how many."""
    written = 0
    for piece in batches(rows, rows=ROWS_OF_A_STATEMENT):
        placeholder = placeholder_of(connection)
        values = ", ".join([_values_of(row, placeholder) for row in piece])
        head, tail = upsert_of_greater("statistics", KEY, COUNTERS, connection.dialect.name)
        parameters: list[Any] = []
        for row in piece:
            parameters += (_INSTANT.process_bind_param(row.at, connection.dialect), row.queue, row.name)
        connection.exec_driver_sql(f"{head} {values} {tail}", tuple(parameters))
        written += len(piece)
    return written


def count_lost_attempts(connection: Connection, lost: Mapping[LostAttempt, int]) -> None:
    """Add attempts whose process has died, in the transaction that takes their tasks back, so that each counts once.

    They are in rows of no process, which nothing else writes, since the process may have written its own.
    """
    at = bucket_start(connection.execute(sa.select(now())).scalar_one(), MINUTE)
    keys = sorted({one[:3] for one in lost})  # in one order, so that two sessions do not wait for each other
    for piece in batches(keys, rows=ROWS_OF_A_STATEMENT):
        rows = [dict(zip(KEY, (MINUTE, at, *key, 0), strict=True)) | dict.fromkeys(COUNTERS, 0) for key in piece]
        insert_if_absent(connection, statistics, rows, key=KEY)
    for attempt, count in sorted(lost.items()):
        key = zip(KEY, (MINUTE, at, *attempt[:3], 0), strict=True)
        column = statistics.c[attempt.outcome]
        row = sa.update(statistics).where(*(statistics.c[name] == value for name, value in key))
        connection.execute(row.values({column: column + count}))


def counters_of(totals: AttemptTotals) -> list[int | float]:
    """The numbers of a row, in the order of `COUNTERS`."""
    outcomes = [totals.outcomes.get(name, 0) for name in OUTCOMES]
    wait, run = totals.wait, totals.run
    return [*outcomes, totals.busy, wait.sum, *wait.counts, run.sum, *run.counts]


def totals_of(counters: Sequence[Any]) -> AttemptTotals:
    """Totals of the numbers of a row, or of sums of such numbers."""
    outcomes = dict(zip(OUTCOMES, map(int, counters), strict=False))
    wait = Histogram(list(map(int, counters[_WAIT_BINS:_RUN_SUM])), _seconds(counters[_WAIT_BINS - 1]))
    run = Histogram(list(map(int, counters[_RUN_SUM + 1 :])), _seconds(counters[_RUN_SUM]))
    return AttemptTotals(outcomes, _seconds(counters[len(OUTCOMES)]), wait, run)


def _seconds(value: Any) -> float:
    """A sum of durations; one that SQL by hand has made infinite can be written again."""
    return min(float(value), sys.float_info.max)


def _values_of(row: BucketRow, placeholder: str) -> str:
    numbers = ",".join(map(repr, counters_of(row.totals)))
    texts = f"{placeholder},{placeholder},{placeholder}"
    return f"({row.step:d},{texts},{to_whole_number(row.node_id)},{row.process_id:d},{numbers})"
