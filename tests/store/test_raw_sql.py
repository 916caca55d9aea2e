"""The table is the public interface: other languages insert, read and move tasks with SQL, and all of that works."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from peerd.domain.bulk import BulkBury, BulkCancel, BulkDelete, BulkKick, BulkMove, BulkRetry
from peerd.domain.errors import TaskNotFound
from peerd.domain.lifecycle import Status
from peerd.store import chore_batches
from peerd.store.jobs.free import delete_free, kick
from peerd.store.jobs.holding import Bury, Release, release_all, touch_reservations
from peerd.store.jobs.reserving import reserve_by_id
from peerd.store.jobs.statistics import job_statistics
from peerd.store.outcomes import database_now
from peerd.store.schema.tables import tasks
from peerd.store.schema.types import seconds_from_now
from peerd.store.tasks.actions import act_on_task
from tests.store.job_steps import bury, put, release, reserve
from tests.store.world import World

pytestmark = pytest.mark.every_database


def only_task(world: World) -> int:
    return world.read(lambda c: int(c.exec_driver_sql("SELECT id FROM tasks").scalar_one()))


def test_a_time_written_by_a_session_in_another_zone_means_the_same_instant_and_so_do_defaults(world: World) -> None:
    """09:30 at +03:00 is 06:30 UTC; on SQLite, which has no sessions' zones, the application writes UTC."""
    zones, times = {
        "mysql": (("SET time_zone = '+03:00'", "SET time_zone = '+00:00'"), ("09:30:00", "10:30:00")),
        "postgresql": (("SET LOCAL TIME ZONE 'Etc/GMT-3'", "SELECT 1"), ("09:30:00", "10:30:00")),
        "sqlite": (("SELECT 1", "SELECT 1"), ("06:30:00.000", "07:30:00.000")),
    }[world.store.name]
    start, finish = (f"'2030-05-01 {time}'" for time in times)
    columns = "INSERT INTO tasks (queue, start_at, finish_at) VALUES"
    with world.store.engine.begin() as connection:
        for statement in (
            zones[0],
            f"{columns} ('q', {start}, {finish})",
            "INSERT INTO tasks (queue) VALUES ('q')",
            zones[1],
        ):
            connection.exec_driver_sql(statement).close()
    later, now = (world.get(task_id) for task_id in world.scalars(sa.select(tasks.c.id).order_by(tasks.c.id)))
    assert later.start_at == datetime(2030, 5, 1, 6, 30, tzinfo=UTC)
    assert later.finish_at == datetime(2030, 5, 1, 7, 30, tzinfo=UTC)
    assert abs(now.created_at - datetime.now(UTC)) < timedelta(seconds=5)
    assert world.take_one().id == now.id


def test_a_row_written_as_done_by_hand_is_purged_later(world: World) -> None:
    fresh, old = world.add(), world.add()
    world.sql(f"UPDATE tasks SET status = 'done' WHERE id = {fresh}")
    world.set(old, status="done", finished_at=seconds_from_now(-3601))
    assert world.run(chore_batches.purge, Status.DONE, 3600.0) == 1
    assert world.find(old) is None
    assert world.column(fresh, "closing_at") is not None
    assert world.run(chore_batches.purge, Status.DONE, -60.0) == 1


def test_what_would_not_be_a_task_is_refused_by_the_database(world: World) -> None:
    refused = [
        "(queue, status) VALUES ('q', 'nonsense')",
        "(queue, status) VALUES ('q', 'PENDING ')",
        "(queue) VALUES ('')",
        "(name) VALUES ('no queue')",
        "(queue, priority) VALUES ('q', -9223372036854775808)",
        "(queue, start_at) VALUES ('q', 'someday')",
    ]
    if world.store.name == "mysql":
        refused += ["(queue, start_at) VALUES ('q', '2039-01-01 00:00:00')"]
    if world.store.name == "sqlite":  # a time in another form than ours
        times = ("2030-05-01T09:30:00.000", "2030-05-01 09:30:00", "2030-05-01 09:30:00.000Z", "1893456000")
        refused += [f"(queue, start_at) VALUES ('q', '{time}')" for time in times]
    for values in refused:
        with pytest.raises(DBAPIError):
            world.sql(f"INSERT INTO tasks {values}")
        assert world.count() == 0, values
    if world.store.name == "mysql":  # where an ENUM takes what it does not know as ''
        with suppress(DBAPIError):  # of MariaDB; MySQL warns
            world.sql("INSERT IGNORE INTO tasks (queue, status) VALUES ('q', 'nonsense')")
        assert world.count() == 0


def test_names_are_compared_byte_by_byte(world: World) -> None:
    for queue in ("video", "Video"):
        world.insert(queue=queue)
    assert len(world.take(world.claimer("video"))) == 1
    assert world.add("q", unique_key="é") != world.add("q", unique_key="e\u0301")


def test_the_clock_of_a_long_transaction_continues(world: World) -> None:
    """PostgreSQL's now() is the transaction's beginning: what is enqueued in a long one would be due before it was."""
    with world.store.engine.begin() as connection:
        first = database_now(connection)
        while database_now(connection) <= first:
            pass
        connection.execute(sa.text("INSERT INTO tasks (queue) VALUES ('q')"))
    assert world.get(only_task(world)).created_at > first


STRANGE = (
    "X'00ff', '{}', NULL, 5",
    "'it', X'7b7dff', NULL, 5",
    "'it', NULL, X'00ff', 5",
    "'it', char(0, 31, 233), NULL, 9e999",
)


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_on_sqlite_a_row_that_json_cannot_encode_is_claimed_with_all_others(world: World) -> None:
    """Columns take bytes where texts belong, and infinity; the rows of a claim travel as JSON."""
    claimer = world.claimer()
    for strange in STRANGE:
        world.sql(f"INSERT INTO tasks (queue, name, body, body_bytes, timeout) VALUES ('q', {strange})")
        plain = world.insert(name="plain", body='"\u00e9"', timeout=1.5)
        first, second = world.take(claimer)
        assert (second.id, second.body, second.timeout) == (plain, '"\u00e9"', 1.5)
        assert first.id < plain
        assert world.complete(first, None)
        assert world.complete(second, '"a\\u0000b"')
        assert world.get(plain).result == '"a\\u0000b"'


COUNTERS = ("reserves", "timeouts", "releases", "buries", "kicks")
EVERYWHERE = {
    "counters that are full": ", ".join(f"{name} = {2**31 - 1}" for name in COUNTERS),
    "counters below zero": ", ".join(f"{name} = {-(2**31)}" for name in COUNTERS),
    "the longest ttr": f"ttr = {2**63 - 1}",
    "the shortest ttr": f"ttr = {1 - 2**63}",
    "a ttr of ten thousand years": f"ttr = {10_000 * 365 * 86_400}",
    "the last lease": f"lease = {2**63 - 1}",
    "the largest priority": f"priority = {2**63 - 1}",
    "the last place among the buried": f"buried_order = {2**63 - 1}",
}
OF_SQLITE = {
    "a ttr that is text": "ttr = 'soon'",
    "counters that are text": ", ".join(f"{name} = 'many'" for name in COUNTERS),
    "an endless ttr": "ttr = 9e999",
}


def test_a_job_that_no_library_would_write_is_treated_like_any_other_and_keeps_no_other_from_clients(
    world: World,
) -> None:
    for name, values in (EVERYWHERE | OF_SQLITE).items():
        world.empty()
        odd, good = put(world, pri=0), put(world, pri=1)
        text = f"UPDATE tasks SET {values} WHERE id = {odd}"
        if name in OF_SQLITE and world.store.name != "sqlite":
            with pytest.raises(sa.exc.DBAPIError):
                world.sql(text)
            continue
        world.sql(text)
        claimer = world.claimer("q")
        held = {job.id: job.claim for job in reserve(world, claimer, 2)}
        assert set(held) == {odd, good}, name
        both = list(held.values())
        assert world.run_group(touch_reservations, claimer.process_id, both) == set(both), name
        assert release(world, claimer, *(Release(claim, 0, 0, "timeouts") for claim in both)) == set(both), name
        both = [job.claim for job in reserve(world, claimer, 2)]
        assert bury(world, claimer, *(Bury(claim, 0, place) for place, claim in enumerate(both))) == set(both), name
        assert world.run_group(kick, "q", 5) == 2, name
        assert {job.id for job in reserve(world, claimer, 2)} == {odd, good}, name
        if name in EVERYWHERE:
            world.run(release_all, claimer.node_id)
            assert world.read(job_statistics, odd) is not None, name
            taken = world.run_group(reserve_by_id, claimer, odd, 60)
            assert (taken and taken.id) == odd, name
            world.run(release_all, claimer.node_id)
            assert world.status(odd) is Status.PENDING, name
            assert world.run_group(delete_free, [odd]), name


def test_a_task_that_no_database_can_have_is_not_found_by_any_action(world: World) -> None:
    for action in (BulkCancel(), BulkRetry(), BulkMove(None), BulkBury(), BulkKick(), BulkDelete()):
        for nowhere in (10**9, 0, -1, 2**64):
            with pytest.raises(TaskNotFound, match=str(nowhere)):
                world.run(act_on_task, nowhere, action)
