"""The options of a queue in peerd.toml, as a client of beanstalkd meets them, on each database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
import sqlalchemy as sa

from peerd.config.settings import QueueSettings
from peerd.domain.lifecycle import Status
from peerd.domain.task import NewTask
from peerd.gateway import queue_capacity
from peerd.gateway.engine import EngineOptions
from peerd.store.connection.database import Database
from peerd.store.enqueue import enqueue
from peerd.store.maintenance import chore_batches
from peerd.store.schema.sql_clock import now
from peerd.store.schema.tables import tasks
from peerd.store.tasks import read
from peerd.testing import eventually
from tests.gateway.beanstalk_connection import BeanstalkConnection
from tests.gateway.gateway_thread import GatewayThread
from tests.store.conftest import kept_stores, store
from tests.store.plans import recorded_statements

__all__ = ["kept_stores", "store"]

FULL = b"OUT_OF_MEMORY\r\n"
ServeQueues = Callable[..., BeanstalkConnection]


@pytest.fixture
def serve(store: Database) -> Iterator[ServeQueues]:
    """Start a gateway whose queue `q` has these options, and connect to it."""
    with ExitStack() as afterwards:

        def start(**options: object) -> BeanstalkConnection:
            queues = {"q": QueueSettings(**options)}  # type: ignore[arg-type]
            given = EngineOptions(queues=queues, is_alone=True)
            gateway = afterwards.enter_context(GatewayThread(store, engine_options=given))
            connection = afterwards.enter_context(BeanstalkConnection(gateway.address))
            connection.use(b"q")
            connection.watch_only(b"q")
            return connection

        yield start


def status_of(store: Database, job_id: int) -> Status | None:
    task = store.read(read.find_task, job_id)
    return None if task is None else task.status


def insert(store: Database, number: int, **values: object) -> None:
    rows = [{"queue": "q", **values}] * number
    store.run(lambda connection: connection.execute(sa.insert(tasks).values(rows)).rowcount)


def put_answers(connection: BeanstalkConnection, number: int) -> list[bytes]:
    """The answers to pipelined puts, without their ids."""
    return [answer.split()[0] for answer in connection.ask_all(b"put 0 0 60 1\r\nx\r\n" * number, number)]


def test_a_finished_job_is_history_where_its_queue_keeps_it(store: Database, serve: ServeQueues) -> None:
    connection = serve(history=3600.0)
    held, ready = connection.put(), connection.put()
    assert connection.reserve() == held
    assert connection.ask_all(b"delete %d\r\ndelete %d\r\n" % (held, ready), 2) == [b"DELETED\r\n"] * 2
    assert (status_of(store, held), status_of(store, ready)) == (Status.DONE, Status.CANCELED)
    assert connection.ask(b"stats-job %d\r\n" % held) == b"NOT_FOUND\r\n"


def test_without_history_a_deleted_job_is_gone(store: Database, serve: ServeQueues) -> None:
    connection = serve()
    job_id = connection.put()
    connection.reserve()
    assert connection.ask(b"delete %d\r\n" % job_id) == b"DELETED\r\n"
    assert status_of(store, job_id) is None


def test_a_job_is_buried_at_a_number_of_releases_and_timeouts(store: Database, serve: ServeQueues) -> None:
    connection = serve(bury_after=3)
    job_id = connection.put(ttr=1)
    assert connection.reserve() == job_id
    assert connection.ask(b"release %d 0 0\r\n" % job_id) == b"RELEASED\r\n"
    assert connection.reserve() == job_id
    eventually(lambda: connection.job(job_id)["timeouts"] == "1", message="its time was over")
    assert connection.reserve() == job_id
    assert connection.ask(b"release %d 0 0\r\n" % job_id) == b"BURIED\r\n"
    assert connection.job(job_id)["state"] == "buried"
    assert status_of(store, job_id) is Status.BURIED


def test_a_job_expires_after_its_delay_and_a_reserved_one_is_finished(store: Database, serve: ServeQueues) -> None:
    connection = serve(expire_after=0.2)
    soon, later, held = connection.put(), connection.put(delay=1000), connection.put(priority=0)
    connection.ask(b"reserve-job %d\r\n" % held)
    eventually(lambda: store.run(chore_batches.expire) == 1, message="the first one has expired")
    assert status_of(store, soon) is None
    assert connection.ask(b"delete %d\r\n" % held) == b"DELETED\r\n"
    task = store.read(read.get_task, later)
    assert task.start_at is not None
    assert task.finish_at is not None
    assert (task.finish_at - task.start_at).total_seconds() == pytest.approx(0.2, abs=0.01)


def test_an_expired_job_is_given_to_no_client_although_its_row_is_there(store: Database, serve: ServeQueues) -> None:
    connection = serve(expire_after=0.1)
    job_id = connection.put()
    eventually(lambda: store.read(is_expired, job_id), message="its time is over")
    assert connection.ask(b"reserve-with-timeout 0\r\n") == b"TIMED_OUT\r\n"
    assert status_of(store, job_id) is Status.PENDING


def is_expired(connection: sa.Connection, job_id: int) -> bool:
    row = connection.execute(sa.select(tasks.c.finish_at <= now()).where(tasks.c.id == job_id)).one()
    return bool(row[0])


def test_a_job_that_would_expire_beyond_every_limit_of_time_does_not(store: Database, serve: ServeQueues) -> None:
    job_id = serve(expire_after=86_400.0).put(delay=2**32 - 1)
    assert store.read(read.get_task, job_id).finish_at is None


def test_a_full_tube_refuses_a_put_and_loses_nothing(serve: ServeQueues) -> None:
    connection = serve(max_jobs=3)
    assert put_answers(connection, 5) == [b"INSERTED"] * 3 + [FULL.strip()] * 2
    assert connection.tube(b"q")["current-jobs-ready"] == "3"
    connection.use(b"other")
    assert put_answers(connection, 5) == [b"INSERTED"] * 5
    connection.use(b"q")
    job_id = connection.reserve()
    assert connection.ask(b"put 0 0 60 1\r\nx\r\n") == FULL, "a reserved job has not ended"
    connection.ask(b"delete %d\r\n" % job_id)
    assert put_answers(connection, 2) == [b"INSERTED", FULL.strip()]


def test_the_tasks_of_others_count_and_those_that_have_ended_do_not(store: Database, serve: ServeQueues) -> None:
    connection = serve(max_jobs=10)
    insert(store, 30, status="done")
    insert(store, 2, status="scheduled")
    insert(store, 2, status="buried")
    insert(store, 1, limit_key="a")
    for _ in range(4):
        store.run(enqueue.enqueue, NewTask(queue="q"))
    assert put_answers(connection, 3) == [b"INSERTED", FULL.strip(), FULL.strip()]
    store.run(lambda c: c.execute(sa.delete(tasks).where(tasks.c.status == "buried")).rowcount)
    room = eventually(lambda: put_answers(connection, 1) == [b"INSERTED"], message="others have made room")
    assert room


def test_a_large_limit_costs_puts_one_count(
    serve: ServeQueues, store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_capacity, "VALID_FOR", 600.0)  # a slow machine puts for longer than a second
    connection = serve(max_jobs=100_000)
    with recorded_statements(store) as sent:
        assert set(put_answers(connection, 500)) == {b"INSERTED"}
    assert len([statement for statement, _ in sent if "unfinished" in statement]) == 1
