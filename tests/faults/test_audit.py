"""The audit on each database: what it writes down, and that peerd's own operations notice nothing of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from peerd import Client
from peerd.domain.bulk import BulkDelete
from peerd.domain.lifecycle import Status
from peerd.domain.outcome import Failed
from peerd.store import chore_batches, nodes, outcomes
from peerd.store.outcomes import ClaimId
from peerd.store.schema.migrate import migrate
from peerd.store.statements import new_token
from peerd.store.take import claiming
from peerd.store.take.claimer import Claimer
from peerd.store.tasks.actions import act_on_task
from tests.faults import audit, final_tables, history, load
from tests.support.outcomes import record_outcome

pytestmark = pytest.mark.slow
LIFE = "a" * 32
CLAIMER = Claimer(node_id=1, incarnation=LIFE, process_id=7, queues=("work", "rows"))


@pytest.fixture
def client(database: str) -> Client:
    client = Client(database)
    migrate(client.database)
    audit.install(client.database.engine)
    client.database.run(nodes.register_incarnation, "one", LIFE, replaces=None)
    return client


def take(client: Client) -> ClaimId:
    [task] = client.database.run(claiming.claim, CLAIMER, token=new_token(), limit=1).tasks
    return ClaimId(task.id, task.lease)


def found_in(client: Client) -> final_tables.FinalTables:
    return final_tables.read(client.database.url.render_as_string(hide_password=False))


def test_each_change_of_a_task_is_written_down_in_its_order_with_its_author_time_and_content(client: Client) -> None:
    with client:
        with client.database.engine.connect() as connection:
            connection.begin()
            client.enqueue_in(connection, "work", name="x", body={"key": "undone"})
            connection.rollback()
        job = client.enqueue("work", name="x", body={"key": "k"}, start_in=0, finish_in=60)
        held = take(client)
        assert not client.database.run(outcomes.touch, {held})
        assert client.database.run(record_outcome, 7, held, Failed(error="no", retry_in=0.0))
        assert client.database.run(chore_batches.stage_due, Status.FAILURE) == 1
        held = take(client)
        assert client.database.run(outcomes.complete, 7, {held: '{"lease": 2}'}) == set()
        now = client.now().timestamp()
        client.tasks.retry(held.id)
        client.database.run(act_on_task, held.id, BulkDelete())
        found = found_in(client)
        changes = [(one.what, one.old_status, one.new_status, one.old_lease, one.new_lease) for one in found.changes]
        assert changes == [
            ("insert", None, "pending", None, 0),
            ("update", "pending", "working", 0, 1),
            ("update", "working", "failure", 1, 1),
            ("update", "failure", "pending", 1, 1),
            ("update", "pending", "working", 1, 2),
            ("update", "working", "done", 2, 2),
            ("update", "done", "pending", 2, 3),
            ("delete", "pending", None, 3, None),
        ]
        inserted, claimed, done = (found.changes[number] for number in (0, 1, 5))
        assert {one.task_id for one in found.changes} == {job.id}
        assert final_tables.key_of(inserted.details) == "k"
        assert (claimed.process_id, claimed.worker_node_id, claimed.crashes) == (7, 1, 0)
        assert str(done.details).replace(" ", "") == '{"lease":2}'
        for one in (inserted, claimed, done):
            assert -0.001 <= now - one.at < 30, "SQLite's julian days are exact to a tenth of a millisecond"
        assert 25 < (claimed.finish_at or 0) - claimed.at <= 60.01
        assert -0.01 <= done.at - (done.checked_at or 0) < 30
        [kept] = [(one.task_id, one.lease, one.outcome, one.number, one.error) for one in found.attempts]
        assert kept == (job.id, 1, "failure", 1, "no"), "attempts outlive their task"


def test_a_load_is_enqueued_once_and_all_of_it_is_in_the_history(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(history.VARIABLE, str(tmp_path))
    url = client.database.url.render_as_string(hide_password=False)
    with client:
        loaded = load.run(url, tasks=100, rate=5000, seed=5, max_update=6.0)
        assert (loaded.accepted, loaded.unsure) == (100, 0)
        enqueued_events = [event for event in history.read(tmp_path) if event.event == "enqueued"]
        found = final_tables.read(url)
        assert sorted(event.task for event in enqueued_events) == sorted(row.id for row in found.rows)
        keys = {row.id: final_tables.key_of(row.body) for row in found.rows}
        assert {event.task: event.key for event in enqueued_events} == keys
        assert len(set(keys.values())) == 100
        inserted = [change for change in found.changes if change.what == "insert"]
        assert {change.task_id: final_tables.key_of(change.details) for change in inserted} == keys
        with client.database.engine.connect() as connection:
            count = sa.select(sa.func.count()).select_from(audit.audit)
            assert connection.execute(count).scalar_one() == len(found.changes)
