"""Rows written with SQL, past the API: none may stop a worker, or harm those beside it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa

from peerd import Context, Queue, Status
from peerd.store.tasks.pages import list_tasks
from peerd.testing import eventually_async
from tests.work.harness import RunnerHarness

EVERYWHERE: dict[str, str] = {
    "a body that is not JSON": "body = '{'",
    "a body that is no object": "body = '[1, 2]'",
    "a body that is nested deeply": f"body = '{'[' * 100_000}'",
    "a number that is no number of ours": "body = '{\"n\": 1e999}'",
    "a number with very many digits": f"body = '{{\"n\": {'9' * 10_000}}}'",
    "half of a surrogate pair": """body = '{"text": "\\\\ud800"}'""",
    "a key that is given twice": 'body = \'{"n": 1, "n": 2}\'',
    "no such argument": "body = '{\"m\": 1}'",
    "an argument of another type": 'body = \'{"n": "many"}\'',
    "no handler of this name": "name = 'unknown'",
    "a name with control characters": "name = 'a\x1b[2J\nb'",
    "no attempts at all": "max_attempts = 0",
    "fewer than no attempts": "max_attempts = -5",
    "many attempts behind it": "attempts = 2147483647, max_attempts = 2147483647",
    "fewer attempts than none": "attempts = -2147483648",
    "the last lease": "lease = 9223372036854775807",
    "a negative lease": "lease = -5",
    "the largest priority": "priority = 9223372036854775807",
    "a negative time-out": "timeout = -1",
    "no time at all": "timeout = 0",
    "an endless time-out": "timeout = 1e308",
    "many attempts behind it, and it fails": "attempts = 2147483647, max_attempts = 2147483647, name = 'fails'",
    "fewer attempts than none, and it fails": "attempts = -2147483648, max_attempts = -2147483648, name = 'fails'",
    "an empty trace context": "trace_context = ''",
    "an unknown key": "unique_key = ''",
}
OF_ONE: dict[str, dict[str, str]] = {
    "sqlite": {
        "a time-out that is text": "timeout = 'soon'",
        "an endless time-out of SQLite": "timeout = 9e999",
        "a body of bytes": "body = x'ff00fe'",
        "a body that is a number": "body = 17",
        "a body that is not UTF-8": "body = CAST(x'ff00fe' AS TEXT)",
        "a name that is not UTF-8": "name = CAST(x'ff00fe' AS TEXT)",
        "a name of bytes": "name = x'ff00fe'",
        "a NUL in a name": "name = 'a' || char(0) || 'b'",
        "attempts that are text": "attempts = 'none'",
        "attempts that are text, and it fails": "attempts = 'none', name = 'fails'",
        "max_attempts that are text": "max_attempts = 'all'",
        "a priority that is text": "priority = 'high'",
        "a priority that is a fraction": "priority = 1.5",
        "a lease that is text": "lease = 'mine'",
        "a node that is text": "worker_node_id = 'here'",
        "the first year": "start_at = '0000-01-01 00:00:00.000'",
        "the last year": "finish_at = '9999-12-31 23:59:59.999'",
    },
    "postgresql": {
        "a start before all times": "start_at = '-infinity'",
        "a finish after all times": "finish_at = 'infinity'",
        "a start before Christ": "start_at = '0044-03-15 BC'",
        "a finish after the last year": "finish_at = '20000-01-01'",
        "an endless time-out of PostgreSQL": "timeout = 'infinity'",
        "a time-out that is no number": "timeout = 'NaN'",
        "a time-out that is no number, and it takes a while": "timeout = 'NaN', name = 'waits'",
    },
    "mariadb": {
        "a day that is none": "start_at = '0000-00-00 00:00:00'",
    },
}
CASES = [(kind, what) for kind in ("sqlite", "mariadb", "postgresql") for what in [*EVERYWHERE, *OF_ONE[kind]]]

queue = Queue("q")


@queue.task
async def count(ctx: Context, n: int = 0, text: str = "") -> int:
    return n


@queue.task
async def waits(ctx: Context) -> None:
    await asyncio.sleep(0.05)


@queue.task
async def fails(ctx: Context) -> None:
    raise ValueError("as it must")


@pytest.mark.parametrize(("migrated_database", "hostile"), CASES, indirect=["migrated_database"], ids=str)
async def test_a_row_that_no_library_would_write_harms_nothing(each_harness: RunnerHarness, hostile: str) -> None:
    harness = each_harness
    name = {"mysql": "mariadb"}.get(harness.database.name, harness.database.name)
    change = EVERYWHERE.get(hostile) or OF_ONE[name][hostile]
    bad = harness.world.insert(queue="q", name="count", max_attempts=1)
    _write(harness, f"UPDATE tasks SET {change} WHERE id = {bad}")
    good = harness.world.insert(queue="q", name="count", body='{"n": 1}', priority=5)
    runner = harness.run(queue, unknown_after=0.0)  # what no code knows is dead at once
    assert (await harness.until(good, Status.DONE)).result == "1"
    await eventually_async(lambda: _status(harness, bad) in {"done", "dead", "canceled"})
    assert len(harness.database.read(list_tasks).items) == 2
    await harness.stop(runner)
    assert harness.uncaught == []


def _write(harness: RunnerHarness, sql: str) -> None:
    with harness.database.engine.begin() as connection:
        if harness.database.name == "mysql":
            connection.exec_driver_sql("SET SESSION sql_mode = ''")
        connection.execute(sa.text(sql.replace(":", "\\:")))


def _status(harness: RunnerHarness, task_id: int) -> Any:
    """Its status, read without our own reading of rows."""
    return harness.database.read(
        lambda c: c.execute(sa.text(f"SELECT status FROM tasks WHERE id = {task_id}")).scalar()
    )
