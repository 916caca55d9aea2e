"""Rows written with SQL, past the API: none may stop a worker, or harm those beside it."""

from __future__ import annotations

import asyncio

import pytest
import sqlalchemy as sa

from peerd import Context, Queue, Status
from peerd.store.tasks.pages import list_tasks
from peerd.testing import eventually_async
from tests.work.harness import RunnerHarness

EVERYWHERE = (
    "body = '{'", "body = '[1, 2]'", f"body = '{'[' * 100_000}'", "body = '{\"n\": 1e999}'",
    f"body = '{{\"n\": {'9' * 10_000}}}'", """body = '{"text": "\\\\ud800"}'""", 'body = \'{"n": 1, "n": 2}\'',
    "body = '{\"m\": 1}'", 'body = \'{"n": "many"}\'', "name = 'unknown'", "name = 'a\x1b[2J\nb'", "max_attempts = 0",
    "max_attempts = -5", "attempts = 2147483647, max_attempts = 2147483647", "attempts = -2147483648",
    "lease = 9223372036854775807", "lease = -5", "priority = 9223372036854775807", "timeout = -1", "timeout = 0",
    "timeout = 1e308", "attempts = 2147483647, max_attempts = 2147483647, name = 'fails'",
    "attempts = -2147483648, max_attempts = -2147483648, name = 'fails'", "trace_context = ''", "unique_key = ''",
)  # fmt: skip
OF_ONE = {
    "sqlite": (
        "timeout = 'soon'", "timeout = 9e999", "body = x'ff00fe'", "body = 17", "body = CAST(x'ff00fe' AS TEXT)",
        "name = CAST(x'ff00fe' AS TEXT)", "name = x'ff00fe'", "name = 'a' || char(0) || 'b'", "attempts = 'none'",
        "attempts = 'none', name = 'fails'", "max_attempts = 'all'", "priority = 'high'", "priority = 1.5",
        "lease = 'mine'", "worker_node_id = 'here'", "start_at = '0000-01-01 00:00:00.000'",
        "finish_at = '9999-12-31 23:59:59.999'",
    ),
    "postgresql": (
        "start_at = '-infinity'", "finish_at = 'infinity'", "start_at = '0044-03-15 BC'", "finish_at = '20000-01-01'",
        "timeout = 'infinity'", "timeout = 'NaN'", "timeout = 'NaN', name = 'waits'",
    ),
    "mariadb": tuple(f"{column} = '0000-00-00 00:00:00'" for column in ("start_at", "created_at")),
}  # fmt: skip

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


@pytest.mark.every_database
async def test_rows_that_no_library_would_write_harm_nothing(each_harness: RunnerHarness) -> None:
    harness = each_harness
    kind = {"mysql": "mariadb"}.get(harness.database.name, harness.database.name)
    hostile = (*EVERYWHERE, *OF_ONE[kind])
    bad = {harness.world.insert(queue="q", name="count", max_attempts=1): what for what in hostile}
    for task_id, what in bad.items():
        _write(harness, f"UPDATE tasks SET {what} WHERE id = {task_id}")
    good = [harness.world.insert(queue="q", name="count", body='{"n": 1}', priority=5) for _ in bad]
    runner = harness.run(queue, unknown_after=0.0)  # what no code knows is dead at once
    assert {(await harness.until(task_id, Status.DONE)).result for task_id in good} == {"1"}
    await eventually_async(lambda: not [what for task_id, what in bad.items() if not _has_ended(harness, task_id)])
    assert len(harness.database.read(list_tasks, limit=200).items) == len(good) + len(bad)
    await harness.stop(runner)
    assert harness.uncaught == []


def _write(harness: RunnerHarness, sql: str) -> None:
    with harness.database.engine.begin() as connection:
        if harness.database.name == "mysql":
            connection.exec_driver_sql("SET SESSION sql_mode = ''")
        connection.execute(sa.text(sql.replace(":", "\\:")))


def _has_ended(harness: RunnerHarness, task_id: int) -> bool:
    found = sa.text(f"SELECT status FROM tasks WHERE id = {task_id}")
    return harness.database.read(lambda one: one.execute(found).scalar()) in {"done", "dead", "canceled"}
