"""Log lines in the table: pages, limits of a batch, and their end with their task or by age."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from peerd import Client
from peerd.config.settings import QueueSettings
from peerd.domain.lifecycle import Status
from peerd.domain.log_line import LogCursor
from peerd.manager.history import make_walks
from peerd.store.maintenance import chore_batches
from peerd.store.schema.sql_clock import seconds_from_now
from peerd.store.schema.tables import task_logs
from peerd.store.tasks import actions, log_lines
from peerd.store.tasks.line_insert import LoggedLine
from peerd.store.tasks.log_lines import LineRange, purge_lines, write_lines
from tests.store.plans import analyze, problems_of_plans, recorded_statements
from tests.store.world import World

NOW = datetime.now(UTC)


def line(task_id: int, sequence: int, lease: int = 1, **values: Any) -> LoggedLine:
    given: dict[str, Any] = {"attempt": lease, "at": NOW, "level": "info", "logger": "app", "fields": None}
    given |= {"message": f"{lease}.{sequence}", **values}
    return LoggedLine(task_id=task_id, lease=lease, sequence=sequence, **given)


def write(world: World, task_id: int, number: int, lease: int = 1, **values: Any) -> None:
    for start in range(0, number, 500):
        rows = [line(task_id, one, lease, **values) for one in range(start, min(start + 500, number))]
        world.run(write_lines, rows)


def done(world: World, ago: float = 100.0) -> int:
    return world.insert(status=str(Status.DONE), finished_at=seconds_from_now(-ago))


def test_pages_follow_the_claims_and_the_numbers(world: World) -> None:
    client = Client(world.store)
    task_id = world.add()
    assert client.tasks.logs(task_id) == log_lines.LogPage([], None, has_more=False, ended=False)
    write(world, task_id, 12, lease=2)
    write(world, task_id, 3, lease=10, level="error", fields='{"a": [1]}', message="snowman \N{SNOWMAN} \x1b")
    write(world, world.add(), 1)
    page = client.tasks.logs(task_id, limit=10)
    assert [(one.lease, one.sequence) for one in page.items] == [(2, number) for number in range(10)]
    assert (page.next, page.has_more) == ("2-9", True)
    rest = client.tasks.logs(task_id, after=page.next, limit=10)
    assert [one.cursor for one in rest.items] == ["2-10", "2-11", "10-0", "10-1", "10-2"]
    assert (rest.items[-1].fields, rest.items[-1].message) == ({"a": [1]}, "snowman \N{SNOWMAN} \x1b")
    assert client.tasks.logs(task_id, after=rest.next).next == rest.next == "10-2"
    assert [one.lease for one in client.tasks.logs(task_id, level="warning").items] == [10] * 3
    assert [one.lease for one in client.tasks.logs(task_id, attempt=2).items] == [2] * 12
    last = client.tasks.last_logs(task_id, limit=2)
    assert ([one.cursor for one in last.items], last.count) == (["10-1", "10-2"], 15)


def test_a_write_may_repeat_and_deletes_what_it_supersedes(world: World) -> None:
    task_id = world.add()
    write(world, task_id, 5)
    world.run(
        write_lines, [line(task_id, number, message="again") for number in range(3, 7)], [LineRange(task_id, 1, 1, 2)]
    )
    found = Client(world.store).tasks.logs(task_id).items
    assert [(one.sequence, one.message) for one in found] == [
        (0, "1.0"), (3, "1.3"), (4, "1.4"), (5, "again"), (6, "again"),
    ]  # fmt: skip


def test_texts_and_times_are_read_as_they_were_written(world: World) -> None:
    texts = ("100 % of %s and %(name)s", "'quotes' \"and\" \\ back", "", "\N{SNOWMAN}\N{VIDEO CAMERA}\n\t\x1b", "?:x")
    agos = (timedelta(microseconds=NOW.microsecond), timedelta(hours=5, microseconds=1000))
    for task_id, ago in enumerate(agos, 1):
        at = (NOW - ago).astimezone(timezone(timedelta(hours=3)))
        rows = [
            line(task_id, number, message=text, logger=text, at=at, fields=json.dumps({"text": text}))
            for number, text in enumerate(texts)
        ]
        world.run(write_lines, rows)
        found, _ = world.read(log_lines.read_lines, task_id, after=None, limit=10)
        assert [(one.message, one.fields) for one in found] == [(text, {"text": text}) for text in texts]
        assert all(timedelta(0) <= at - one.at < timedelta(milliseconds=1) for one in found)


def test_lines_end_with_their_task(world: World) -> None:
    kept, gone = done(world, ago=0.0), [done(world) for _ in range(3)]
    with recorded_statements(world.store) as sent:
        assert world.run(chore_batches.purge, Status.DONE, 50.0) == 3
    assert not [text for text, _ in sent if "DELETE FROM task_logs" in text], "without lines, nothing is written there"
    gone = [done(world) for _ in range(3)]
    for task_id in (kept, *gone):
        write(world, task_id, 4)
    client = Client(world.store)
    ended = [client.tasks.logs(kept), client.tasks.logs(gone[0]), client.tasks.logs(gone[0], limit=1)]
    assert [page.ended for page in ended] == [False, True, False], "a line may come, none may, there are more"
    assert world.run(chore_batches.purge, Status.DONE, 50.0) == 3 + 12
    assert world.count(task_logs) == 4
    world.run(actions.delete, kept)
    assert world.count(task_logs) == 0


def test_a_batch_deletes_a_bounded_number_of_lines(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines.deletable_with_lines, "__defaults__", (20,))
    tasks = [done(world, ago=100 - number) for number in range(6)]
    for task_id, lines in zip(tasks, (8, 8, 8, 70, 0, 1), strict=True):
        write(world, task_id, lines)
    most = 0
    while deleted := world.run(chore_batches.purge, Status.DONE, 50.0):
        most = max(most, deleted)
    assert most <= 20 + 6
    assert (world.count(), world.count(task_logs)) == (0, 0)


def test_a_walk_of_a_history_leaves_no_task_with_many_lines(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines.deletable_with_lines, "__defaults__", (20,))
    tasks = [done(world, ago=1000 - number) for number in range(6)]
    for task_id, lines in zip(tasks, (8, 0, 8, 70, 0, 8), strict=True):
        write(world, task_id, lines)
    others = world.insert(queue="long", status=str(Status.DONE), finished_at=seconds_from_now(-1000.0))
    write(world, others, 50)
    walk = make_walks({"long": QueueSettings(history=1e6)}, 60.0, lambda: 0.0)[0]
    steps = 0
    while walk.record(world.run(walk.run, 5), 5):
        steps += 1
        assert steps < 50
    assert (world.count(), world.count(task_logs)) == (1, 50)


def test_old_lines_are_purged_by_their_age_the_oldest_first(world: World) -> None:
    first, second = world.add(), world.add()
    write(world, first, 8, at=NOW - timedelta(days=9))
    write(world, second, 8, at=NOW - timedelta(days=8))
    write(world, second, 8, lease=2)
    assert world.run(purge_lines, 7 * 86_400.0, 10) == 10
    assert not Client(world.store).tasks.logs(first).items
    assert world.run(purge_lines, 7 * 86_400.0, 10) == 6
    assert world.run(purge_lines, 7 * 86_400.0, 10) == 0
    assert world.count(task_logs) == 8


@pytest.mark.slow
@pytest.mark.every_database
def test_lines_are_found_by_their_indexes(world: World) -> None:
    for task_id in range(1, 60):
        write(world, task_id, 100, message="m" * 100)
    analyze(world.store, "task_logs")
    operations: list[Callable[[], object]] = [
        lambda: world.read(log_lines.read_lines, 7, after=LogCursor(1, 50), limit=10),
        lambda: world.read(log_lines.read_last_lines, 7, 5),
        lambda: world.run(purge_lines, 7 * 86_400.0, 10),
    ]
    for operation in operations:
        assert not problems_of_plans(world.store, operation, "task_logs")
