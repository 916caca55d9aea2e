"""Log lines in the table: pages, limits of a batch, and their end with their task or by age."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from peerd import Actor, Client
from peerd.config.settings import QueueSettings
from peerd.domain.bulk import BulkDelete
from peerd.domain.errors import NotPermitted
from peerd.domain.lifecycle import Status
from peerd.domain.log_line import LogCursor
from peerd.manager.walks import make_walks
from peerd.store import chore_batches
from peerd.store.schema.tables import task_logs, tasks
from peerd.store.schema.types import seconds_from_now
from peerd.store.tasks import log_lines
from peerd.store.tasks.actions import act_on_task
from peerd.store.tasks.log_lines import PART, LineFilter, LineRange, LoggedLine, purge_lines, search_lines, write_lines
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


def test_lines_of_all_tasks_are_searched_from_the_newest_back(world: World) -> None:
    client = Client(world.store)
    cut, sent = world.add("video", name="cut"), world.add("mail", name="send")
    told: list[tuple[int, int, str, str | None]] = [
        (cut, 0, "disk /dev/sda1 is full", None),
        (cut, 60, "100% of the Disk", None),
        (sent, 120, "sent", '{"to":"disk"}'),
        (sent, 180, "nothing of it", None),
        (10**6, 240, "a disk of a task that is gone", None),
    ]
    present = datetime.now(UTC)
    for number, (task_id, ago, message, fields) in enumerate(told):
        at = present - timedelta(seconds=ago)
        level = "error" if number == 1 else "info"
        world.run(write_lines, [line(task_id, number, message=message, at=at, fields=fields, level=level)])
    everything: dict[str, Any] = {}
    for wanted, expected in (
        (everything, [(cut, "cut"), (cut, "cut"), (sent, "send"), (10**6, None)]),
        ({"limit": 1}, [(cut, "cut")]),
        ({"queue": "mail"}, [(sent, "send")]),
        ({"name": "cut", "level": "warning"}, [(cut, "cut")]),
        ({"since": "100s"}, [(cut, "cut"), (cut, "cut")]),
    ):
        assert [(one.task_id, one.name) for one in client.tasks.search_logs("DISK", **wanted).items] == expected, wanted
    for text, expected_lines in (("100%", 1), ("0%o", 0), ("_", 0), ("/dev/", 1)):
        assert len(client.tasks.search_logs(text).items) == expected_lines, text
    own = client.acting_as(Actor.with_role("ann", "viewer", queues=["mail"]))
    assert [one.task_id for one in own.tasks.search_logs("disk").items] == [sent]
    masking = Client(world.store, mask=["to"]).acting_as(Actor.with_role("ben", "viewer"))
    with pytest.raises(NotPermitted, match="needs the right admin"):
        masking.tasks.search_logs("disk")


def test_a_search_ends_after_its_time_and_its_next_page_goes_on_from_there(world: World) -> None:
    task_id = world.add()
    for start in range(0, 2 * PART + 10, 500):
        rows = [
            line(task_id, one, message="rare" if one in (0, PART) else "often", at=NOW - timedelta(seconds=one))
            for one in range(start, min(start + 500, 2 * PART + 10))
        ]
        world.run(write_lines, rows)
    rare = LineFilter(text="rare")
    found, pages, after = [], 0, None
    while pages == 0 or after is not None:
        page = world.read(search_lines, rare, 86_400.0, after=None if after is None else int(after), search_time=-1.0)
        found += [one.line.sequence for one in page.items]
        pages, after = pages + 1, page.next
    assert (found, pages) == ([0, PART], 3), "each page examined one part"
    assert world.read(search_lines, rare, 86_400.0, search_time=600.0).next is None
    often = LineFilter(text="often")
    sequences: list[int] = []
    for _ in range(3):
        page = world.read(search_lines, often, 86_400.0, after=None if not sequences else int(page.next or 0), limit=7)
        sequences += [one.line.sequence for one in page.items]
    assert sequences == list(range(1, 22)), "none twice, none left out"


def test_lines_of_one_instant_are_no_end_of_a_search(world: World) -> None:
    task_id = world.add()
    write(world, task_id, 5)
    world.run(write_lines, [line(task_id, 9, at=NOW - timedelta(seconds=1), message="1.x")])
    page = world.read(search_lines, LineFilter(text="1."), 86_400.0, limit=3)
    assert len(page.items) == 3
    rest = world.read(search_lines, LineFilter(text="1."), 86_400.0, after=int(page.next or 0), limit=3)
    assert ([one.line.sequence for one in rest.items], rest.next) == ([9], None)


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
    world.run(act_on_task, kept, BulkDelete())
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
def test_lines_are_found_by_their_indexes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for task_id in range(1, 60):
        write(world, task_id, 100, message="m" * 100, at=NOW - timedelta(hours=task_id))
    analyze(world.store, "task_logs")
    operations: list[Callable[[], object]] = [
        lambda: world.read(log_lines.read_lines, 7, after=LogCursor(1, 50), limit=10),
        lambda: world.read(log_lines.read_last_lines, 7, 5),
        lambda: world.run(purge_lines, 7 * 86_400.0, 10),
    ]
    for operation in operations:
        assert not problems_of_plans(world.store, operation, "task_logs")
    monkeypatch.setattr(log_lines, "PART", 50)
    world.run(write_lines, [line(60, one, at=NOW - timedelta(days=3, seconds=one)) for one in range(500)])
    world.execute(sa.insert(tasks), [{"queue": "q", "status": "done"} for _ in range(1_000)])
    analyze(world.store, "task_logs", "tasks")
    for seconds, after in ((600.0, None), (4 * 86_400.0, (NOW - timedelta(days=3, seconds=99)).timestamp() * 1e6)):
        search = partial(search_lines, after=None if after is None else int(after), search_time=-1.0)
        looked: Callable[[], object] = partial(world.read, search, LineFilter(text="nowhere"), seconds)
        assert not problems_of_plans(world.store, looked, "task_logs", may_sort=True)
