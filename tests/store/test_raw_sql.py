"""The table is the public interface: other languages insert, read and move tasks with SQL, and all of that works."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from peerd.domain.lifecycle import Status
from peerd.store.maintenance import chore_batches
from peerd.store.outcomes.recording import database_now
from peerd.store.schema.sql_clock import seconds_from_now
from tests.store.world import World

pytestmark = pytest.mark.every_database


def execute(world: World, sql: str) -> None:
    with world.store.engine.begin() as connection:
        connection.exec_driver_sql(sql)


def only_task(world: World) -> int:
    return world.read(lambda c: int(c.exec_driver_sql("SELECT id FROM tasks").scalar_one()))


def test_an_insert_of_queue_name_and_body_is_a_complete_enqueue(world: World) -> None:
    execute(world, """INSERT INTO tasks (queue, name, body) VALUES ('video', 'transcode', '{"source": "a.mp4"}')""")
    [task] = world.take(world.claimer("video"))
    assert (task.name, task.json, task.priority, task.attempts) == ("transcode", {"source": "a.mp4"}, 10, 0)
    assert world.complete(task, "1")


def test_a_time_written_by_a_session_in_another_zone_means_the_same_instant(world: World) -> None:
    """09:30 at +03:00 is 06:30 UTC; on SQLite, which has no sessions' zones, the application writes UTC."""
    columns = "INSERT INTO tasks (queue, start_at, finish_at) VALUES"
    with world.store.engine.begin() as connection:
        match world.store.name:
            case "mysql":
                connection.exec_driver_sql("SET time_zone = '+03:00'")
                connection.exec_driver_sql(f"{columns} ('q', '2030-05-01 09:30:00', '2030-05-01 10:30:00')")
                connection.exec_driver_sql("SET time_zone = '+00:00'")
            case "postgresql":
                connection.exec_driver_sql("SET LOCAL TIME ZONE 'Etc/GMT-3'")
                connection.exec_driver_sql(f"{columns} ('q', '2030-05-01 09:30:00', '2030-05-01 10:30:00')")
            case _:
                connection.exec_driver_sql(f"{columns} ('q', '2030-05-01 06:30:00.000', '2030-05-01 07:30:00.000')")
    task = world.get(only_task(world))
    assert task.start_at == datetime(2030, 5, 1, 6, 30, tzinfo=UTC)
    assert task.finish_at == datetime(2030, 5, 1, 7, 30, tzinfo=UTC)


def test_defaults_mean_the_same_instant_in_every_session(world: World) -> None:
    with world.store.engine.begin() as connection:
        match world.store.name:
            case "mysql":
                connection.exec_driver_sql("SET time_zone = '-07:00'")
                connection.exec_driver_sql("INSERT INTO tasks (queue) VALUES ('q')")
                connection.exec_driver_sql("SET time_zone = '+00:00'")
            case "postgresql":
                connection.exec_driver_sql("SET LOCAL TIME ZONE 'Etc/GMT+7'")
                connection.exec_driver_sql("INSERT INTO tasks (queue) VALUES ('q')")
            case _:
                connection.exec_driver_sql("INSERT INTO tasks (queue) VALUES ('q')")
    task = world.get(only_task(world))
    assert abs(task.created_at - datetime.now(UTC)) < timedelta(seconds=5)
    assert world.take_one().id == task.id


def test_a_row_written_as_done_by_hand_is_purged_later(world: World) -> None:
    fresh, old = world.add(), world.add()
    execute(world, f"UPDATE tasks SET status = 'done' WHERE id = {fresh}")
    world.set(old, status="done", finished_at=seconds_from_now(-3601))
    assert world.run(chore_batches.purge, Status.DONE, 3600.0) == 1
    assert world.find(old) is None
    assert world.column(fresh, "closing_at") is not None
    assert world.run(chore_batches.purge, Status.DONE, -60.0) == 1


def test_a_row_written_as_done_by_hand_on_mysql_counts_from_that_moment(world: World) -> None:
    """There ``updated_at`` is kept by the database; elsewhere it is of our own writes."""
    old = world.insert(created_at=seconds_from_now(-7200), updated_at=seconds_from_now(-7200))
    execute(world, f"UPDATE tasks SET status = 'done' WHERE id = {old}")
    assert world.run(chore_batches.purge, Status.DONE, 3600.0) == (0 if world.store.name == "mysql" else 1)


@pytest.mark.parametrize(
    "values",
    [
        "(queue, status) VALUES ('q', 'nonsense')",
        "(queue, status) VALUES ('q', 'PENDING ')",
        "(queue) VALUES ('')",
        "(name) VALUES ('no queue')",
        "(queue, priority) VALUES ('q', -9223372036854775808)",
        "(queue, start_at) VALUES ('q', 'someday')",
    ],
)
def test_what_would_not_be_a_task_is_refused_by_the_database(world: World, values: str) -> None:
    with pytest.raises(DBAPIError):
        execute(world, f"INSERT INTO tasks {values}")
    assert world.count() == 0


@pytest.mark.parametrize(
    "moment", ["2030-05-01T09:30:00.000", "2030-05-01 09:30:00", "2030-05-01 09:30:00.000Z", "2030-05-01", "1893456000"]
)
@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_on_sqlite_a_time_in_another_form_is_refused(world: World, moment: str) -> None:
    with pytest.raises(DBAPIError, match="start_at_form"):
        execute(world, f"INSERT INTO tasks (queue, start_at) VALUES ('q', '{moment}')")


@pytest.mark.parametrize("store", ["mariadb"], indirect=True)
def test_a_moment_that_mysql_cannot_hold_is_refused_there(world: World) -> None:
    with pytest.raises(DBAPIError, match="Incorrect datetime"):
        execute(world, "INSERT INTO tasks (queue, start_at) VALUES ('q', '2039-01-01 00:00:00')")


def test_names_are_compared_byte_by_byte(world: World) -> None:
    world.node("a")
    for queue in ("video", "Video", "video "):
        if queue == "video " and world.store.name == "mysql":
            continue  # PAD SPACE: a queue's name has no spaces at its end, NewTask sees to that
        world.insert(queue=queue)
    assert len(world.take(world.claimer("video"))) == 1
    assert world.add("q", unique_key="é") != world.add("q", unique_key="e\u0301")


def test_ids_are_never_given_again(world: World) -> None:
    first = world.add()
    execute(world, f"DELETE FROM tasks WHERE id = {first}")
    assert world.add() > first


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
        execute(world, f"INSERT INTO tasks (queue, name, body, body_bytes, timeout) VALUES ('q', {strange})")
        plain = world.insert(name="plain", body='"\u00e9"', timeout=1.5)
        first, second = world.take(claimer)
        assert (second.id, second.body, second.timeout) == (plain, '"\u00e9"', 1.5)
        assert first.id < plain
        assert world.complete(first, None)
        assert world.complete(second, '"a\\u0000b"')
        assert world.get(plain).result == '"a\\u0000b"'


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_on_sqlite_bytes_come_back_as_they_were(world: World) -> None:
    body = bytes(range(256))
    world.insert(body_bytes=body)
    world.insert(body_bytes=b"")
    assert [task.body_bytes for task in world.take(world.claimer())] == [body, b""]
