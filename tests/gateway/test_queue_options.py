"""The options of a queue in peerd.toml, as a client of beanstalkd meets them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest
import sqlalchemy as sa

from peerd.config.settings import QueueSettings
from peerd.domain.lifecycle import Status
from peerd.domain.task import NewTask
from peerd.store import chore_batches, enqueue
from peerd.store.connection.database import Database
from peerd.store.schema.tables import tasks
from peerd.store.tasks import pages
from peerd.testing import eventually
from tests.gateway.beanstalk_connection import BeanstalkConnection
from tests.gateway.gateway_thread import GatewayThread

FULL = b"OUT_OF_MEMORY"
INSERTED = b"INSERTED"
QUEUES = {
    "kept": QueueSettings(history=3600.0),
    "plain": QueueSettings(),
    "buried": QueueSettings(bury_after=3),
    "expiring": QueueSettings(expire_after=1.0),
    "long": QueueSettings(expire_after=86_400.0),
    "small": QueueSettings(max_jobs=3),
    "shared": QueueSettings(max_jobs=10),
}
ConnectTo = Callable[[str], BeanstalkConnection]


@pytest.fixture(scope="module")
def database(module_database: str) -> Iterator[Database]:
    with closing(Database(module_database)) as database:
        yield database


@pytest.fixture(scope="module")
def gateway(database: Database) -> Iterator[GatewayThread]:
    with GatewayThread(database, queues=QUEUES) as gateway:
        yield gateway


@pytest.fixture
def connect_to(gateway: GatewayThread) -> Iterator[ConnectTo]:
    """A connection that uses and watches a queue."""
    with ExitStack() as afterwards:

        def connect_to(queue: str) -> BeanstalkConnection:
            connection = afterwards.enter_context(gateway.connect())
            connection.use(queue.encode())
            connection.watch_only(queue.encode())
            return connection

        yield connect_to


def status_of(database: Database, job_id: int) -> Status | None:
    task = database.read(pages.find_task, job_id)
    return None if task is None else task.status


def put_answers(connection: BeanstalkConnection, number: int) -> list[bytes]:
    """The answers to pipelined puts, without their ids."""
    return [answer.split()[0] for answer in connection.ask_all(b"put 0 0 60 1\r\nx\r\n" * number, number)]


def test_a_job_that_was_deleted_is_history_where_its_queue_keeps_it(database: Database, connect_to: ConnectTo) -> None:
    connection = connect_to("kept")
    held, ready = connection.put(), connection.put()
    assert connection.reserve() == held
    assert connection.ask_all(b"delete %d\r\ndelete %d\r\n" % (held, ready), 2) == [b"DELETED\r\n"] * 2
    assert (status_of(database, held), status_of(database, ready)) == (Status.DONE, Status.CANCELED)
    assert connection.ask(b"stats-job %d\r\n" % held) == b"NOT_FOUND\r\n"


def test_a_job_is_buried_at_a_number_of_releases_and_timeouts(database: Database, connect_to: ConnectTo) -> None:
    connection = connect_to("buried")
    job_id = connection.put(ttr=1)
    reserve_and_release = b"reserve-with-timeout 0\r\nrelease %d 0 0\r\n" % job_id  # its time to run is a second
    assert connection.ask_all(reserve_and_release, 2)[1] == b"RELEASED\r\n"
    assert connection.reserve() == job_id
    eventually(lambda: connection.job(job_id)["timeouts"] == "1", message="its time was over")
    assert connection.ask_all(reserve_and_release, 2)[1] == b"BURIED\r\n"
    assert status_of(database, job_id) is Status.BURIED


def test_a_job_expires_after_its_delay_and_a_reserved_one_is_finished(
    database: Database, connect_to: ConnectTo
) -> None:
    def is_expired_and_gone() -> bool:
        database.run(chore_batches.expire)
        return status_of(database, soon) is None

    connection = connect_to("expiring")
    soon, later = connection.put(), connection.put(delay=1000)
    sent = b"put 0 0 60 1\r\nx\r\nreserve-job %d\r\n" % (later + 1)  # before it expires
    held = int(connection.ask_all(sent, 2)[1].split()[1])
    eventually(is_expired_and_gone)
    assert connection.ask(b"delete %d\r\n" % held) == b"DELETED\r\n"
    task = database.read(pages.get_task, later)
    assert (task.start_at and task.finish_at and (task.finish_at - task.start_at).total_seconds()) == pytest.approx(
        1.0, abs=1e-3
    )
    far = connect_to("long").put(delay=2**32 - 1)  # beyond every limit of time
    assert database.read(pages.get_task, far).finish_at is None


def test_a_full_tube_refuses_a_put_and_loses_nothing(connect_to: ConnectTo) -> None:
    connection, other = connect_to("small"), connect_to("plain")
    assert put_answers(connection, 5) == [INSERTED] * 3 + [FULL] * 2
    assert connection.tube(b"small")["current-jobs-ready"] == "3"
    assert put_answers(other, 5) == [INSERTED] * 5
    job_id = connection.reserve()
    assert put_answers(connection, 1) == [FULL], "a reserved job has not ended"
    connection.ask(b"delete %d\r\n" % job_id)
    assert put_answers(connection, 2) == [INSERTED, FULL]


def test_the_tasks_of_others_count_and_those_that_have_ended_do_not(database: Database, connect_to: ConnectTo) -> None:
    rows: list[dict[str, str]] = [
        *[{"status": "done"}] * 30, *[{"status": "scheduled"}] * 2, *[{"status": "buried"}] * 2, {"limit_key": "a"},
    ]  # fmt: skip
    for row in rows:
        database.run(lambda one, values: one.execute(sa.insert(tasks).values(queue="shared", **values)).rowcount, row)
    for _ in range(4):
        database.run(enqueue.enqueue, NewTask(queue="shared"))
    connection = connect_to("shared")
    assert put_answers(connection, 3) == [INSERTED, FULL, FULL]
    gone = sa.delete(tasks).where(tasks.c.status == "buried", tasks.c.queue == "shared")
    database.run(lambda one: one.execute(gone).rowcount)
    assert eventually(lambda: put_answers(connection, 1) == [INSERTED], message="others have made room")
