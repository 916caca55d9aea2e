from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from peerd.domain.call import Call
from peerd.domain.errors import IdempotencyKeyReused, InvalidFilter, InvalidTask, NodeNotFound, SchemaMissing
from peerd.domain.lifecycle import Status
from peerd.domain.outcome import Done, Failed
from peerd.operate.client import Client
from peerd.store.schema.migrate import migrate
from tests.unit.operate.claiming_process import ClaimingProcess

CALL = Call("video", "transcode", '{"source":"a.mp4"}')


def test_an_enqueued_task_is_in_the_table(client: Client) -> None:
    job = client.enqueue(CALL, priority=20, timeout="2h", max_attempts=5, trace_context="00-ab-cd-01")
    task = client.tasks.get(job.id)
    assert (task.queue, task.name, task.json) == ("video", "transcode", {"source": "a.mp4"})
    assert (task.priority, task.timeout, task.max_attempts, task.trace_context) == (20, 7200.0, 5, "00-ab-cd-01")
    assert (task.status, job.created, job.status) == (Status.PENDING, True, Status.PENDING)
    assert client.tasks.get(client.enqueue("legacy", bytes=b"\x00\xff").id).body_bytes == b"\x00\xff"


def test_a_task_with_a_start_ahead_is_scheduled_by_the_databases_clock(client: Client) -> None:
    later = client.now() + timedelta(hours=1)
    assert client.enqueue(CALL, start_in="1h").status is Status.SCHEDULED
    job = client.enqueue(CALL, start_at=later)
    start_at = client.tasks.get(job.id).start_at
    assert start_at is not None
    assert (job.status, abs(start_at - later) < timedelta(milliseconds=1)) == (Status.SCHEDULED, True)
    assert client.enqueue(CALL, start_at=later - timedelta(hours=2)).status is Status.PENDING


def test_many_tasks_are_enqueued_in_their_order_or_none(client: Client) -> None:
    with pytest.raises(InvalidTask):
        client.enqueue_many(["video", "no spaces"])
    with pytest.raises(NodeNotFound, match="nowhere"):
        client.enqueue_many(["video", "video"], node="nowhere")
    assert client.tasks.list() == []
    jobs = client.enqueue_many(Call("video", "transcode", f'{{"n":{n}}}') for n in range(30))
    assert [client.tasks.get(job.id).json for job in jobs] == [{"n": n} for n in range(30)]


def test_enqueuing_a_unique_key_again_returns_the_first_task(client: Client, holder: ClaimingProcess) -> None:
    first = client.enqueue(CALL, unique="a.mp4")
    again = client.enqueue(CALL, unique="a.mp4")
    assert (again.id, again.created) == (first.id, False)
    holder.run(Done())
    assert client.enqueue(CALL, unique="a.mp4").created
    holder.run(Done())
    for_an_hour = client.enqueue(CALL, unique="a", unique_for="1h")
    holder.run(Failed(error="no", retry_in=None))
    assert client.enqueue(CALL, unique="a", unique_for="1h").id == for_an_hour.id, "also when it has ended"


def test_an_enqueue_with_the_key_of_an_earlier_one_writes_nothing_again(client: Client) -> None:
    first, again = (client.enqueue("mail", idempotency_key="a", priority=7) for _ in range(2))
    assert (first.id, first.created) == (again.id, again.created)
    both = [client.enqueue_many(["mail", "video"], idempotency_key="b") for _ in range(2)]
    assert [job.id for job in both[0]] == [job.id for job in both[1]]
    assert client.tasks.counts()[Status.PENDING] == 3
    with pytest.raises(IdempotencyKeyReused):
        client.enqueue("mail", idempotency_key="a", priority=8)
    with pytest.raises(InvalidFilter, match="idempotency_key"):
        client.enqueue_many(["mail"], idempotency_key="")


def test_a_task_can_be_pinned_to_a_node_by_its_name(client: Client, holder: ClaimingProcess) -> None:
    job = client.enqueue(CALL, node="video-1")
    assert client.tasks.get(job.id).node_id == holder.node_id


def test_a_server_without_tables_is_told_and_an_embedded_database_gets_them_at_the_first_call(database: str) -> None:
    with Client(database) as client:
        with client.database.engine.connect() as connection, pytest.raises(SchemaMissing, match="run `peerd migrate`"):
            client.enqueue_in(connection, CALL)
        if client.database.name != "sqlite":
            with pytest.raises(SchemaMissing, match="peerd migrate"):
                client.enqueue(CALL)
        else:
            assert client.enqueue(CALL).status is Status.PENDING


# ---------------------------------------------------------------- in the caller's own transaction


def test_a_task_commits_with_the_callers_transaction_or_not_at_all(client: Client) -> None:
    engine = client.database.engine
    with engine.begin() as connection:
        kept = client.enqueue_in(connection, CALL)
    with Session(engine) as session, session.begin():
        of_session = client.enqueue_in(session, CALL, priority=7)
    with engine.connect() as connection:
        lost = client.enqueue_in(connection, CALL)
        connection.rollback()
    found = [client.tasks.find(job.id) is not None for job in (kept, lost, of_session)]
    assert found == [True, False, True]
    with pytest.raises(TypeError, match="neither a Connection nor a Session"):
        client.enqueue_in(engine, CALL)  # type: ignore[arg-type]


def test_a_refused_task_leaves_the_callers_transaction_as_it_was(client: Client) -> None:
    with client.database.engine.begin() as connection:
        with pytest.raises(InvalidTask):
            client.enqueue_in(connection, "no spaces")
        with pytest.raises(NodeNotFound):
            client.enqueue_in(connection, CALL, node="nowhere")
        kept = client.enqueue_in(connection, CALL)
    assert [task.id for task in client.tasks.list()] == [kept.id]


def test_a_plain_task_costs_the_callers_session_one_statement(client: Client) -> None:
    statements: list[str] = []
    with client.database.engine.begin() as connection:
        sa.event.listen(connection, "before_cursor_execute", lambda _c, _u, statement, *_: statements.append(statement))
        client.enqueue_in(connection, CALL)
    assert len(statements) == 1, statements


ZONES = {"mysql": "SET time_zone = '-08:00'", "postgresql": "SET TIME ZONE 'America/Los_Angeles'"}


def test_a_time_is_the_same_from_a_session_in_another_time_zone(client: Client) -> None:
    moment = datetime(2037, 7, 1, 12, 30, tzinfo=UTC)
    engine = sa.create_engine(client.database.url)
    with engine.begin() as connection:
        if client.database.name in ZONES:
            connection.execute(sa.text(ZONES[client.database.name]))
        job = client.enqueue_in(connection, CALL, start_at=moment)
        zone = {"mysql": "@@session.time_zone", "postgresql": "current_setting('TimeZone')"}.get(client.database.name)
        if zone:
            assert connection.execute(sa.text(f"SELECT {zone}")).scalar() in ("-08:00", "America/Los_Angeles")
    engine.dispose()
    assert client.tasks.get(job.id).start_at == moment


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "READ COMMITTED"])
def test_a_key_taken_since_the_callers_transaction_began_is_seen(
    database_factory: object, server_database: str, isolation: str
) -> None:
    """Under REPEATABLE READ the transaction does not see the row of the task that has the key."""
    refused = "postgresql" in server_database and isolation == "REPEATABLE READ"
    engine = sa.create_engine(server_database, isolation_level=isolation)
    with Client(server_database) as client:
        migrate(client.database)
        with engine.begin() as connection:
            assert connection.execute(sa.text("SELECT count(*) FROM tasks")).scalar() == 0
            first = client.enqueue(CALL, unique="a.mp4")
            if refused:  # PostgreSQL refuses the transaction as a whole
                with pytest.raises(DBAPIError, match="could not serialize access"):
                    client.enqueue_in(connection, CALL, unique="a.mp4")
                connection.rollback()
            else:
                second = client.enqueue_in(connection, CALL, unique="a.mp4")
                assert (second.id, second.created) == (first.id, False)
    engine.dispose()
