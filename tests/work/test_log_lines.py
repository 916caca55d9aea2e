"""A runner writes the lines of its attempts: beside the outcomes, in time, and never in their way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from peerd import Client, Context, Queue, Status
from peerd.domain.log_line import TaskLogLine
from peerd.runtime.observability.events import DatabaseOutageStarted, EventBus, TaskLinesDropped
from peerd.testing import eventually, eventually_async
from peerd.work import attempt_log
from peerd.work.line_writer import PREFIX, LineWriter
from tests.work.harness import Gates, RunnerHarness

pytestmark = pytest.mark.one_database
LEFT = 1100
"""Lines: more than one write takes."""
LOGS_AND_DIES = f"""
import os, signal, sys
from datetime import UTC, datetime
from pathlib import Path
from peerd.store.tasks.log_lines import LoggedLine
from peerd.work.line_writer import LineJournal
journal = LineJournal(Path(sys.argv[1]))
task_id = int(sys.argv[2])
for number in range({LEFT}):
    journal.append(LoggedLine(task_id, 1, number, 1, datetime.now(UTC), "info", "app", f"line {{number}}", None))
os.kill(os.getpid(), signal.SIGKILL)
"""


@contextmanager
def writing(harness: RunnerHarness, level: str = "info") -> Iterator[LineWriter]:
    writer = LineWriter(harness.database, EventBus(harness.events), level)
    writer.start()
    yield writer
    harness.database.heal()
    writer.stop(10.0)


def lines_of(harness: RunnerHarness, task_id: int) -> list[TaskLogLine]:
    client = Client(harness.database)
    found = client.tasks.logs(task_id, limit=1000)
    assert not found.has_more
    return found.items


async def until_lines(harness: RunnerHarness, task_id: int, number: int, within: float = 60.0) -> list[TaskLogLine]:
    await eventually_async(lambda: len(lines_of(harness, task_id)) >= number, timeout=within)
    return lines_of(harness, task_id)


async def test_each_attempt_keeps_its_own_lines_with_the_times_of_the_database(each_harness: RunnerHarness) -> None:
    queue = Queue("q")

    @queue.task
    async def fails_once(ctx: Context) -> None:
        ctx.log.info("began", attempt_number=ctx.task.attempts + 1)
        if not ctx.task.attempts:
            raise RuntimeError("the first one fails")
        ctx.log.debug("not kept")
        ctx.log.error("ended", path="\N{SNOWMAN}")

    with writing(each_harness) as writer:
        task_id = each_harness.world.add(name="fails_once", body="{}")
        each_harness.run(queue, lines=writer.lines)
        await each_harness.until(task_id, Status.FAILURE)
        await until_lines(each_harness, task_id, 1)
        each_harness.world.set(task_id, status="pending", start_at=None)
        await each_harness.until(task_id, Status.DONE)
        first, second, third = await until_lines(each_harness, task_id, 3)
    assert [(one.lease, one.sequence, one.message) for one in (first, second, third)] == [
        (1, 0, "began"), (2, 0, "began"), (2, 1, "ended"),
    ]  # fmt: skip
    assert [first.attempt, second.attempt] == [1, 2]
    assert (third.level, third.logger, third.fields) == ("error", "ctx.log", {"path": "\N{SNOWMAN}"})
    row = each_harness.world.get(task_id)
    assert row.worker_started_at
    assert row.finished_at
    assert (second.at - row.worker_started_at).total_seconds() >= -0.1
    assert (third.at - row.finished_at).total_seconds() <= 0.1


async def test_lines_of_a_running_attempt_are_seen_while_it_runs_and_without_lines_nothing_is_written(
    harness: RunnerHarness, gates: Gates
) -> None:
    @gates.queue.task
    async def talks(ctx: Context) -> None:
        ctx.log.info("it runs")
        await gates.gate("go").wait()

    with writing(harness) as writer:
        silent = [harness.world.add(name="gated", body="{}") for _ in range(20)]
        gates.open("")
        harness.run(gates.queue, lines=writer.lines, count=4)
        for task_id in silent:
            await harness.until(task_id, Status.DONE)
        assert harness.database.calls["write_lines"] == 0
        talking = harness.world.add(name="talks", body="{}")
        await until_lines(harness, talking, 1)
        assert harness.world.status(talking) is Status.WORKING
        gates.open("go")
        await harness.until(talking, Status.DONE)


async def test_an_outage_delays_lines_and_drops_the_oldest_beyond_a_limit(
    harness: RunnerHarness, gates: Gates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_log, "MAX_WAITING_BYTES", 2000)
    queue = gates.queue

    @queue.task
    async def talks(ctx: Context) -> None:
        await gates.gate("away").wait()
        for number in range(100):
            ctx.log.info("line", text="." * 92, number=number)

    with writing(harness) as writer:
        task_id = harness.world.add(name="talks", body="{}")
        harness.run(queue, lines=writer.lines)
        await eventually_async(lambda: harness.world.status(task_id) is Status.WORKING)
        harness.database.fail("write_lines", times=None)
        gates.open("away")
        await harness.until(task_id, Status.DONE)  # which does not wait for the lines
        await eventually_async(lambda: harness.database.calls["write_lines"] >= 2)
        harness.database.heal()
        found = await until_lines(harness, task_id, 15)
        await eventually_async(lambda: harness.of(TaskLinesDropped))
    assert found[-1].sequence == 99
    assert len(found) < 45  # those that wait, and those of a round that had begun
    assert sum(event.count for event in harness.of(TaskLinesDropped)) == 100 - len(lines_of(harness, task_id))
    assert not harness.of(DatabaseOutageStarted)


def test_what_a_killed_process_has_left_is_written_once_whatever_else_is_in_its_file(
    harness: RunnerHarness, tmp_path: Path
) -> None:
    run_directory = tmp_path / "run"
    run_directory.mkdir()
    task_id = harness.world.add()
    killed = subprocess.run([sys.executable, "-c", LOGS_AND_DIES, run_directory, str(task_id)], check=False)
    assert killed.returncode == -signal.SIGKILL
    [file] = run_directory.iterdir()
    with file.open("ab") as end:
        end.write(b'{"task_id":7,"lease":1,"sequ')  # the disk was full
    others = {f"{PREFIX}{os.getppid()}": b"of a process that lives", f"{PREFIX}of-nobody": b""}
    for name, content in others.items():
        (run_directory / name).write_bytes(content)
    harness.database.fail("write_lines", times=1)
    for directory in (run_directory, tmp_path / "is-not-there"):
        writer = LineWriter(harness.database, EventBus(harness.events), "info", directory)
        writer.start()
        eventually(lambda: not file.exists())
        writer.stop(10.0)
    logs = Client(harness.database).tasks.logs
    first = logs(task_id, limit=1000)
    found = [*first.items, *logs(task_id, after=first.next).items]
    assert [one.message for one in found] == [f"line {number}" for number in range(LEFT)]
    assert {path.name for path in run_directory.iterdir()} == set(others)


async def test_lines_that_the_database_refuses_harm_no_others_and_a_stop_writes_what_waits(
    harness: RunnerHarness,
) -> None:
    queue = Queue("q")

    @queue.task
    async def talks(ctx: Context, words: str) -> None:
        ctx.log.info(words)

    with writing(harness) as writer:
        harness.database.fail("write_lines", error=ValueError("refused"))
        first = harness.world.add(name="talks", body='{"words": "a"}')
        runner = harness.run(queue, lines=writer.lines)
        await harness.until(first, Status.DONE)
        await eventually_async(lambda: harness.of(TaskLinesDropped))
        second = harness.world.add(name="talks", body='{"words": "the last words"}')
        await harness.until(second, Status.DONE)
        await harness.stop(runner)
    assert [one.message for one in lines_of(harness, second)] == ["the last words"]
    assert harness.of(TaskLinesDropped)[0] == TaskLinesDropped(count=1, reason="ValueError: refused")
