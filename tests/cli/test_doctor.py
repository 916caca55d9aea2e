"""`peerd doctor`, and what it finds on each database."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from peerd import Actor
from peerd.domain.alert import AlertReport
from peerd.domain.attempt_totals import AttemptTotals
from peerd.domain.outcome import Failed
from peerd.domain.task import NewTask
from peerd.operate.client import Client
from peerd.operate.diagnostics import Finding, Level, mysql, postgresql
from peerd.operate.diagnostics.finding import Verdict
from peerd.store import enqueue
from peerd.store.alerts import ReportAge, record_alert
from peerd.store.attempt_series import BucketRow, write_buckets
from peerd.store.queue_states import sample_depths, write_depths
from peerd.store.schema.migrate import migrate
from peerd.store.schema.tables import alerts, audit, nodes, processes, tasks
from peerd.store.schema.types import seconds_from_now
from peerd.store.time_series import MINUTE, bucket_start
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


AGO = seconds_from_now(-600.0)
State = Callable[[Client, ClaimingProcess], object]


def change(table: sa.Table, *conditions: sa.ColumnElement[bool], **values: object) -> State:
    return lambda client, _: client.database.run(
        sa.Connection.execute, sa.update(table).where(*conditions).values(values)
    )


def put(queue: str = "video", count: int = 1, **options: Any) -> State:
    """Tasks that have waited for ten minutes."""

    def enqueue(client: Client, _: ClaimingProcess) -> None:
        for job in client.enqueue_many([queue] * count, **options):
            aged = sa.update(tasks).where(tasks.c.id == job.id).values(created_at=AGO)
            client.database.run(sa.Connection.execute, aged)

    return enqueue


def fail(client: Client, holder: ClaimingProcess) -> None:
    client.enqueue("video", name="push")
    holder.run(Failed(error="no"))


def attempts(client: Client, holder: ClaimingProcess) -> None:
    at = bucket_start(datetime.now(UTC), MINUTE) - timedelta(minutes=1)
    for name, done, dead in (("push", 1, 15), ("pull", 3, 1)):
        totals = AttemptTotals({"done": done, "dead": dead})
        row = BucketRow(MINUTE, at, "video", name, holder.node_id, holder.process_id, totals)
        client.database.run(write_buckets, [row])


def alert(kind: str, subject: str = "", **data: object) -> State:
    report = AlertReport(kind=kind, subject=subject, node="video-1", text=f"{kind} is on", data=data)
    return lambda client, _: client.database.run(record_alert, report, ReportAge())


def silent(client: Client, _: ClaimingProcess, name: str = "gamma") -> None:
    ClaimingProcess(client.database, name)
    change(nodes, nodes.c.name == name, active=False, checked_at=AGO)(client, _)


def pause(client: Client, _: ClaimingProcess) -> None:
    client.acting_as(Actor.with_role("ann", "operator")).queues.pause("video")
    change(audit, at=AGO)(client, _)


def claim(client: Client, holder: ClaimingProcess) -> None:
    holder.claim()


def put_job(client: Client, _: ClaimingProcess) -> None:
    client.database.run(enqueue.put, [NewTask(queue="tube", ttr=60)])


GAMMA = "gamma has been silent for 10m; its tasks go to others"
UNSERVED = "3 tasks are waiting in viedo, which no worker process has ever served"
SLOTS = "1 of 1 waiting tasks is due, the first for 10m; all 4 slots are taken (4 on video-1)"
STATES: dict[str, tuple[list[State], Verdict, list[str]]] = {
    "a task waits for a moment": ([lambda client, _: client.enqueue("video")], Verdict.GREEN, []),
    "no node": ([change(nodes, incarnation=None, active=False)], Verdict.YELLOW, ["no node is active: no task runs"]),
    "a silent node, and the alert about it": (
        [silent, alert("inactive-nodes", "gamma")],
        Verdict.RED, [GAMMA],
    ),
    "tasks for a silent node, and all alerts about it": (
        [silent, put(count=2, node="gamma"), alert("pinned-tasks", nodes=["gamma"]), alert("backlog", "video")],
        Verdict.RED,
        [GAMMA, "video: 2 of 2 waiting tasks are pinned to gamma, silent for 10m"],
    ),
    "tasks for a node that was forgotten": (
        [put(), put(limit_key="k"), change(tasks, tasks.c.limit_key.is_not(None), node_id=4711)],
        Verdict.RED,
        [
            "video: 1 of 2 waiting tasks is pinned to node 4711, which is gone",
            "video: 1 of 2 waiting tasks is due, the first for 10m; 4 of 4 slots are free (4 on video-1)",
        ],
    ),
    "a misspelt queue": ([put("viedo", 3)], Verdict.RED, [UNSERVED]),
    "all slots are taken": ([put(count=5), claim, claim, claim, claim], Verdict.GREEN, [f"video: {SLOTS}"]),
    "all slots are taken for hours": (
        [put(count=5), change(tasks, created_at=seconds_from_now(-7200.0)), claim, claim, claim, claim],
        Verdict.YELLOW, [f"video: {SLOTS.replace('10m', '2h')}"],
    ),
    "no process serves it any more": (
        [put(), change(nodes, draining=True)],
        Verdict.YELLOW, ["video: 1 of 1 waiting tasks is due, the first for 10m; no process serves the queue"],
    ),
    "a job of a queue client": (
        [put_job, change(tasks, created_at=AGO)],
        Verdict.YELLOW, ["tube: 1 of 1 waiting tasks is due, the first for 10m; no queue client has reserved them"],
    ),
    "a limit": (
        [put(), lambda client, _: client.limits.set("video", running=0)],
        Verdict.GREEN, ["the limit of video is reached: 0 run, 0 have started"],
    ),
    "a pause": ([put(), pause], Verdict.GREEN, ["video was paused by ann 10m ago, until it is resumed"]),
    "many failures, and dead tasks": (
        [attempts, fail],
        Verdict.YELLOW,
        ["80% of the last 20 attempts of video failed, 15 of them of push", "1 task is dead, and kept for inspection"],
    ),
    "a disk that is gone": ([alert("disk-unusable", "3")], Verdict.RED, ["disk-unusable is on"]),
}  # fmt: skip


@pytest.mark.parametrize("name", STATES)
def test_the_verdict_on_each_state_and_its_sentences(client: Client, holder: ClaimingProcess, name: str) -> None:
    steps, verdict, sentences = STATES[name]
    for step in steps:
        step(client, holder)
    client.database.run(write_depths, client.database.read(sample_depths))
    overview = client.statistics.overview()
    assert (overview.verdict, [one.message for one in overview.concerns]) == (verdict, sentences)
    assert all(one.remedy for one in overview.concerns)
    mine = {one.message for one in overview.findings}
    assert mine <= {one.message for one in client.examine()}, "the doctor counts anew, and says the same"
    assert "could not be examined" not in str(client.examine())


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
    assert (
        "1 file cannot be read; no repair begins by itself, because the disks of too many nodes are away" in messages[0]
    )
    assert messages[1].startswith("nothing is repaired")


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
    assert peerd("doctor").lines[-1] == "1 warning", "no node is active"
    (project / "peerd.toml").write_text('[workers.video]\ntasks = "peerd.workers.video.jobs:video"\n')
    assert any(finding["subject"] == "ffmpeg" for finding in peerd("doctor", "--json").json["findings"])
    with Client(f"sqlite:///{project / 'peerd.sqlite'}") as client:
        ClaimingProcess(client.database)
        client.database.run(sa.Connection.execute, sa.update(nodes).values(active=False, checked_at=AGO))
    problem, remedy, summary = peerd("doctor", status=1).lines[-3:]
    assert problem == "problem  nodes  video-1 has been silent for 10m; its tasks go to others"
    assert (remedy.startswith("try: check the machine and its log"), summary) == (True, "2 problems")
    status = peerd("status").lines
    assert "verdict  red" in status
    assert status[-2:] == [problem, remedy], "one verdict, with the same words"
    assert peerd("status", "--json").json["cluster"]["statistics"]["verdict"] == "red"


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
