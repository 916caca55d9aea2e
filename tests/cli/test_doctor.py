"""`peerd doctor`, and what it finds on each database."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from peerd.domain.alert_record import AlertReport
from peerd.domain.outcome import Failed
from peerd.domain.task import NewTask
from peerd.operate.client import Client
from peerd.operate.diagnostics import Finding, Level, cluster, mysql, postgresql
from peerd.store.alerts.recording import ReportAge, record_alert
from peerd.store.jobs import put
from peerd.store.nodes.nodes import deregister_node
from peerd.store.schema.migrate import migrate
from peerd.store.schema.sql_clock import seconds_from_now
from peerd.store.schema.tables import alerts, processes, tasks
from peerd.testing import eventually
from tests.cli.conftest import Peerd
from tests.store.file_steps import Catalogue
from tests.support.server_kinds import INNODB
from tests.support.servers import DatabaseFactory, ServerFactory, as_admin, execute
from tests.unit.operate.claiming_process import ClaimingProcess


@pytest.fixture
def client(migrated_database: str) -> Iterator[Client]:
    """On each database, unlike the other tests of the command line."""
    with Client(as_admin(migrated_database)) as client:
        yield client


def found(client: Client, subject: str) -> Finding:
    """The worst finding of the subject."""
    findings = [finding for finding in client.examine() if finding.subject == subject]
    return max(findings, key=lambda finding: list(Level).index(finding.level))


def test_a_healthy_cluster_has_no_problem_and_a_silent_node_is_one(client: Client, holder: ClaimingProcess) -> None:
    client.enqueue("video")
    assert {finding.subject for finding in client.examine() if finding.level is Level.PROBLEM} <= {"fsync"}
    assert "could not be examined" not in str(client.examine())
    assert found(client, "nodes").message == "1 active, none silent"
    client.database.run(lambda connection: connection.execute(sa.text("UPDATE nodes SET active = false")))
    assert found(client, "nodes").level is Level.PROBLEM
    client.database.run(deregister_node, "video-1", holder.incarnation)
    assert found(client, "nodes").level is Level.OK, "it has left"


def test_files_that_cannot_be_read_now_are_a_problem(client: Client) -> None:
    assert not [finding for finding in client.examine() if finding.subject == "storage"]
    catalogue = Catalogue(client.database)
    disks = [catalogue.disk(name) for name in "abc"]
    catalogue.put(catalogue.bucket(), "film.mov", disks[0])
    assert found(client, "storage").level is Level.OK
    catalogue.silence(disks[1], 60.0)
    expected = rf"1 of 3 disks is away \(disk {disks[1]} of b\): all files can be read; repair begins at \d\d:\d\d UTC"
    assert re.fullmatch(expected, found(client, "storage").message)
    assert found(client, "storage").level is Level.WARNING
    catalogue.silence(disks[1], 0.0)
    catalogue.silence(disks[0], 60.0)
    assert "1 file cannot be read" in found(client, "storage").message
    assert "peerd files disks lost" in found(client, "storage").remedy
    catalogue.silence(disks[1], 1_000.0)
    catalogue.silence(disks[0], 1_000.0)
    messages = [finding.message for finding in client.examine() if finding.subject == "storage"]
    assert "1 file cannot be read; too many nodes are away at once for a repair that begins by itself" in messages[0]
    assert messages[1].startswith("nothing is repaired")


def test_tasks_pinned_to_a_node_that_is_not_there_are_a_problem(client: Client, holder: ClaimingProcess) -> None:
    first, _ = client.enqueue_many(["video", "video"], node="video-1")
    assert not [finding for finding in client.examine() if finding.subject == "pinned tasks"]
    client.database.run(deregister_node, "video-1", holder.incarnation)
    assert found(client, "pinned tasks").message == "2 tasks are waiting for video-1, which is not there"
    client.database.run(lambda connection: connection.execute(sa.text("UPDATE tasks SET node_id = 4711")))
    assert found(client, "pinned tasks").message == "2 tasks are waiting for node 4711, which is not there"
    assert found(client, "pinned tasks").remedy.startswith(f"no node has this id: peerd tasks move {first.id} ")


def test_tasks_of_a_queue_that_no_worker_has_ever_served_are_a_problem(client: Client, holder: ClaimingProcess) -> None:
    client.enqueue_many(["video", "viedo", "viedo"])
    client.enqueue("again", limit_key="a customer")
    again, viedo = (one for one in client.examine() if one.subject == "queues")
    assert again.message == "1 task is waiting in again, which no worker process has ever served"
    assert (viedo.level, viedo.remedy.startswith("did you mean 'video'?")) == (Level.PROBLEM, True)


def test_a_running_task_that_is_not_touched_is_a_problem_unless_it_is_a_reservation(
    client: Client, holder: ClaimingProcess
) -> None:
    client.enqueue("video")
    holder.claim()
    assert found(client, "running tasks").level is Level.OK
    assert "1 task is not touched for 0s" in str(client.examine(max_update=0.0))
    ago = {"checked_at": seconds_from_now(-600), "updated_at": seconds_from_now(-600)}

    def level_of(deadline: float) -> Level:
        reserved = sa.update(tasks).values(ttr=3600, deadline_at=seconds_from_now(deadline), **ago)
        client.database.run(lambda connection: connection.execute(reserved).rowcount)
        return found(client, "running tasks").level

    assert [level_of(deadline) for deadline in (3000.0, -1.0, -600.0)] == [Level.OK, Level.OK, Level.PROBLEM]


def test_tasks_that_wait_for_long_while_none_of_their_queue_runs_are_a_warning(
    client: Client, holder: ClaimingProcess
) -> None:
    def messages() -> list[str]:
        return [one.message for one in client.examine() if one.subject == "queues" and one.level is Level.WARNING]

    client.enqueue_many(["video"] * 3)
    client.database.run(lambda connection: put(connection, [NewTask(queue="tube", ttr=60)]))  # clients serve it
    assert messages() == []
    client.database.run(lambda one: one.execute(sa.update(tasks).values(created_at=seconds_from_now(-600))).rowcount)
    assert [message.partition(",")[0] for message in messages()] == [
        "1 task is waiting in tube", "3 tasks are waiting in video",
    ]  # fmt: skip
    client.database.run(lambda one: one.execute(sa.delete(tasks).where(tasks.c.queue == "tube")).rowcount)
    holder.claim()
    assert messages() == [], "a worker takes them, one after the other"
    long_ago = sa.update(tasks).values(worker_started_at=seconds_from_now(-90))
    client.database.run(lambda one: one.execute(long_ago).rowcount)
    assert "those that run have taken all slots" in found(client, "queues").message
    client.tasks.cancel(next(task.id for task in client.tasks.list(status="working")))
    client.queues.pause("video")
    assert messages() == [], "a paused queue has a finding of its own"
    client.queues.resume("video")
    client.limits.set("video", running=0)
    assert messages() == [], "it may be the limit"


def test_a_loop_that_fails_again_and_again_is_a_problem_as_long_as_it_does(client: Client) -> None:
    report = AlertReport(kind="exception", subject="chore expire", node="one", text="chore expire failed: no")
    for times in range(3):
        assert [one.message for one in client.examine() if one.subject == "components"] == [
            "on one: chore expire failed: no"
        ] * (times > 1)
        client.database.run(record_alert, report, ReportAge())
    client.database.run(lambda one: one.execute(sa.update(alerts).values(last_seen_at=seconds_from_now(-200))).rowcount)
    assert not [one for one in client.examine() if one.subject == "components"]


@pytest.mark.parametrize(
    ("kind", "statement"),
    [("mariadb", "SET GLOBAL read_only = 1"), ("postgresql", "ALTER SYSTEM SET default_transaction_read_only = on")],
)
def test_a_server_that_takes_no_writes_is_a_problem(private_server: ServerFactory, kind: str, statement: str) -> None:
    server = private_server(kind)
    with Client(as_admin(server.url("peerd"))) as client:
        migrate(client.database)
        assert "read-only" not in {finding.subject for finding in client.examine()}
        execute(server, statement)
        if kind == "postgresql":
            execute(server, "SELECT pg_reload_conf()")
        eventually(lambda: found(client, "read-only").level is Level.PROBLEM)


def test_dead_tasks_and_paused_queues_are_reported_and_counting_ends_where_it_would_cost(
    client: Client, monkeypatch: pytest.MonkeyPatch, holder: ClaimingProcess
) -> None:
    for number in range(3):
        client.enqueue("video")
        holder.run(Failed(error="no"))
        if not number:
            assert found(client, "dead tasks").message == "1 task is kept for inspection"
    monkeypatch.setattr(cluster, "MAX_COUNTED", 2)
    assert found(client, "dead tasks").message == "2 or more tasks are kept for inspection"
    client.queues.pause("mail")
    assert found(client, "queues").message == "mail is paused"


def test_a_long_open_transaction_is_reported_with_its_session(
    server_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mysql, "OLD_TRANSACTION", -1.0)
    monkeypatch.setattr(postgresql, "OLD_TRANSACTION", -1.0)
    forgotten = sa.create_engine(server_database, isolation_level="REPEATABLE READ")
    with Client(as_admin(server_database)) as client, forgotten.connect() as connection:
        migrate(client.database)
        connection.execute(sa.text("SELECT count(*) FROM tasks"))
        own = {"mysql": "connection_id()", "postgresql": "pg_backend_pid()"}[client.database.name]
        session = connection.execute(sa.text(f"SELECT {own}")).scalar()
        # The server is shared: for a moment the oldest transaction may be another test's. MariaDB reads them anew only
        # when no session has queried them for a tenth of a second.
        eventually(lambda: str(session) in found(client, "transactions").remedy, timeout=60, every=0.2)
    forgotten.dispose()


def test_more_processes_than_the_server_has_connections_for_are_a_warning(
    server_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(as_admin(server_database)) as client:
        migrate(client.database)
        assert found(client, "connections").level is Level.OK
        row = {"node_id": 1, "incarnation": "i", "kind": "k", "slot": "k-1", "role": "worker", "pid": 1}
        with client.database.engine.begin() as connection:
            connection.execute(sa.insert(processes), [row, row])
        monkeypatch.setattr("peerd.operate.diagnostics.connections.PER_PROCESS", 1_000_000)
        assert "2 processes may use 2,000,000" in found(client, "connections").message


@pytest.mark.parametrize("kind", INNODB)
def test_missing_privileges_are_reported(database_factory: DatabaseFactory, kind: str) -> None:
    """On PostgreSQL every user may look at what is examined."""
    with Client(as_admin(database_factory(kind))) as owner:
        migrate(owner.database)
        name = owner.database.url.database
        user = f"u{name}"[:32]
        with owner.database.engine.begin() as connection:
            connection.execute(sa.text(f"CREATE USER '{user}'@'%'"))
            connection.execute(sa.text(f"GRANT ALL ON {name}.* TO '{user}'@'%'"))
        try:
            with Client(owner.database.url.set(username=user)) as client:
                client.enqueue("video")
                missing = [finding for finding in client.examine() if "could not be examined" in finding.message]
                assert {finding.level for finding in missing} == {Level.NOTE}
                assert found(client, "dead tasks").level is Level.OK
        finally:
            with owner.database.engine.begin() as connection:
                connection.execute(sa.text(f"DROP USER '{user}'@'%'"))


def test_the_doctor_prints_its_findings_and_fails_on_a_problem(peerd: Peerd, project: Path) -> None:
    assert "do not exist yet" in peerd("doctor").out
    peerd("migrate")
    assert "no problems" in peerd("doctor").out
    (project / "peerd.toml").write_text('[workers.video]\ntasks = "peerd.workers.video.jobs:video"\n')
    assert any(finding["subject"] == "ffmpeg" for finding in peerd("doctor", "--json").json["findings"])
    with Client(f"sqlite:///{project / 'peerd.sqlite'}") as client:
        ClaimingProcess(client.database)
        client.database.run(lambda connection: connection.execute(sa.text("UPDATE nodes SET active = false")))
    problem, remedy, summary = peerd("doctor", status=1).lines[-3:]
    assert problem == "problem  nodes  video-1 is silent; their tasks go to others"
    assert (remedy.startswith("try: check the machine and its log"), summary) == (True, "1 problem")


def test_a_missing_secret_on_mariadb_and_missing_tables_are_reported(
    peerd: Peerd, project: Path, database_factory: DatabaseFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in ("mariadb", "postgresql"):
        url = database_factory(kind)

        def remedies(subject: str = "", url: str = url) -> list[str]:
            findings = peerd("doctor", "--database", url, "--json", status=1).json["findings"]
            return [one["remedy"] for one in findings if subject in one["subject"] and one["remedy"]]

        assert "peerd migrate" in remedies()
        if kind == "mariadb":
            [remedy] = remedies("doorbell")
            assert "PEERD_CLUSTER_SECRET" in remedy
            monkeypatch.setenv("PEERD_CLUSTER_SECRET", "a secret that all nodes share")
        assert remedies("doorbell") == []
        monkeypatch.delenv("PEERD_CLUSTER_SECRET", raising=False)
