"""Fixtures of clients of a server: a database with some of everything, copies of it, and a served app."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from peerd import Client, TaskFilter
from peerd.domain.access import Right
from peerd.domain.alert import AlertReport
from peerd.domain.attempt_totals import AttemptTotals, Histogram
from peerd.domain.bulk import BulkRetry
from peerd.domain.outcome import Done, Failed
from peerd.domain.schedule import RunStatus, Schedule
from peerd.store import nodes, schedule_runs, schedules
from peerd.store.alerts import ReportAge, record_alert
from peerd.store.attempt_series import BucketRow, write_buckets
from peerd.store.files.buckets import get_bucket
from peerd.store.files.uploads import NewUpload, enter_upload
from peerd.store.node_requests import finish_request, take_requests
from peerd.store.queue_states import sample_depths, write_depths
from peerd.store.schedule_runs import NodeIdentity
from peerd.store.schema.migrate import migrate
from peerd.store.schema.tables import file_access_keys
from peerd.store.schema.tables import nodes as node_table
from peerd.store.schema.types import seconds_from_now
from peerd.store.tasks.log_lines import LoggedLine, write_lines
from peerd.store.time_series import MINUTE, bucket_start
from peerd.store.tokens import touch_token
from tests.cli.conftest import peerd
from tests.store.file_steps import Catalogue
from tests.support.quick_passwords import quick_passwords
from tests.support.served_api import ShownApp
from tests.unit.operate.claiming_process import ClaimingProcess

__all__ = ["peerd", "quick_passwords"]  # the fixtures

REFRESH = Schedule(name="refresh", run="studio:refresh", interval=60.0, args=["a"])
NIGHTLY = Schedule(name="nightly", queue="video", task="clean", cron="0 3 * * *", timezone="Europe/Berlin")


ACCESS_KEY = "PEERDABCDEFGHIJKLMNO"
UPLOAD = "ab" * 16
PASSWORD = "correct horse battery"
SLOT = {
    "name": "video-1", "kind": "video", "role": "worker", "state": "RUNNING", "pid": 4242, "generation": 2,
    "restarts": 1, "started_at": "2026-11-21T09:30:00+00:00", "backoff_until": None, "error": None, "replacing": None,
    "leaving": [], "vitals": {"in_flight": 1, "lag": 0.001}, "sample": {"memory": 2**40, "cpu": 0.5},
    "last_cause": {"text": "killed by SIGKILL"},
}  # fmt: skip
NODE_ANSWERS: dict[str, Any] = {
    "state": {
        "node": "video-1", "pid": 1, "state": "running", "started_at": "2026-11-21T09:30:00+00:00", "reloads": [],
        "slots": [SLOT],
    },
    "reload": {"kinds": {"video": "done"}},
    "scale": {"kind": "video", "before": 1, "processes": 3},
    "stack": {
        "task_id": 4, "node": "video-1", "slot": "video-1", "since": "2026-11-21T09:30:00Z", "is_cut": False,
        "process": None, "calls": [{"name": "main", "frames": [{"file": "a.py", "line": 7, "function": "wait"}]}],
    },
}  # fmt: skip


def fill(client: Client) -> None:
    """Tasks 1 to 9 of many statuses, and some of everything else; the second bulk action was canceled."""
    holder = ClaimingProcess(client.database)
    for number in range(4):
        client.enqueue("video", name="transcode", body={"source": f"Größe {number}.mp4"}, priority=2**60 - number)
    holder.run(Done(result='{"output":7}'))
    holder.run(Failed(error="OSError: no disk", traceback="Traceback …", retry_in=3600.0))
    holder.run(Failed(error="ValueError: is no video"), max_attempts=1)
    holder.report(holder.claim(), 0.25, "a quarter")
    client.enqueue("mail", bytes=b"\xff\x00", limit_key="customer 7")
    client.enqueue("mail", text="no JSON", start_in="1h", unique="once", max_attempts=9, timeout=1.5)
    client.tasks.cancel(client.enqueue("mail").id, "not wanted")
    client.tasks.bury(client.enqueue("mail").id)
    client.enqueue("mail", body=[1, None, "a"])
    client.queues.pause("mail", "1h")
    client.limits.set("video", running=3, rate="100/1m")
    client.limits.set("mail", each_key=True, running=1)
    found = client.database.read(nodes.find_node, "video-1")
    assert found is not None
    identity = NodeIdentity(found.id, holder.incarnation)
    for schedule in (REFRESH, NIGHTLY):
        client.database.run(schedules.declare_schedule, schedule, identity, 10.0)
    run = client.schedules.run("refresh")
    [taken] = client.database.run(schedule_runs.claim_run, run, REFRESH, identity, [("video-1", 4242)])
    client.database.run(schedule_runs.end_run, taken.id, RunStatus.FAILED, "OSError: no disk")
    client.schedules.create("tidy", queue="jobs", task="tidy", interval="10m")
    client.bulk.create(BulkRetry(), TaskFilter(status="dead"))
    client.bulk.cancel(client.bulk.create(BulkRetry(), TaskFilter(status="dead")).id)
    for user in ("ann", "eve"):
        client.users.add(user, "admin", PASSWORD)
    client.nodes.request_scale("video-1", "video", 2)
    write_records(client)
    write_files(client)
    ClaimingProcess(client.database, "old")
    silent = node_table.update().where(node_table.c.name == "old").values(checked_at=seconds_from_now(-86_400))
    client.database.run(lambda connection: connection.execute(silent))


def write_records(client: Client) -> None:
    """Lines of task 1, attempts of the last minutes, and a sample of the queues."""
    at = datetime.now(UTC)
    lines = [
        LoggedLine(1, 1, number, 1, at, level, "app", f"line {number}: Größe\x1b[2J", '{"size": 3}')
        for number, level in enumerate(("info", "warning", "error"), start=1)
    ]
    client.database.run(write_lines, lines)
    totals = AttemptTotals({"done": 6, "dead": 4}, 0.0, Histogram.of([0.5] * 10), Histogram.of([2.0] * 10))
    minute = bucket_start(at, MINUTE) - timedelta(minutes=1)
    client.database.run(write_buckets, [BucketRow(MINUTE, minute, "video", "transcode", 1, 7, totals)])
    client.database.run(write_depths, client.database.read(sample_depths))
    for kind, queue, text in (("backlog", "mail", "tasks wait"), ("dead-tasks", "video", "task 3 is dead\x1b[2J")):
        report = AlertReport(kind=kind, subject=queue, node="video-1", text=text, data={"queue": queue}, slot="video-1")
        client.database.run(record_alert, report, ReportAge())


def write_files(client: Client) -> None:
    """Three files in a bucket on a disk of video-1, a disk that was lost, and an upload that has not ended."""
    client.file_classes.set("safe", copies=3, durable=2)
    client.file_classes.set("unused")
    client.buckets.create("films", quota="1GB")
    client.buckets.create("empty", class_name="safe")
    catalogue = Catalogue(client.database)
    disk = client.disks.register("ab" * 16, path="/srv/a", node="video-1")
    client.disks.lost(client.disks.register("cd" * 16, path="/srv/b", node="video-1"))
    of_key = {"id": ACCESS_KEY, "name": "backup", "rights": "write", "scopes": '["films/2026/"]'}
    client.database.run(lambda connection: connection.execute(file_access_keys.insert().values(of_key)))
    films = client.database.read(get_bucket, "films")
    for number, key in enumerate(("2026/Größe.mov", "2026/b.mov", "c.mov"), start=1):
        catalogue.publish(films, catalogue.new(key, disk, 10 * number, id=2**62 + number))
    new = NewUpload(id=UPLOAD, key="2026/u.mov", disk_id=disk, content_id=7, class_name="default", size=99)
    client.database.run(enter_upload, films, new)


@contextmanager
def answering_node(client: Client, name: str = "video-1") -> Iterator[None]:
    """The node answers what it is requested, as its agent would; what was requested before is answered at once."""
    ended = Event()
    incarnation = client.database.read(nodes.get_node, name).incarnation
    assert incarnation is not None

    def answer() -> None:
        for request in client.database.run(take_requests, incarnation, 10):
            result = json.dumps(NODE_ANSWERS[request.command])
            client.database.run(finish_request, request.id, result=result, error=None)

    def answer_periodically() -> None:
        while not ended.wait(0.02):
            answer()

    answer()
    thread = Thread(target=answer_periodically)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.fixture(autouse=True)
def _impatient(impatient: None) -> None: ...


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database's file; to be copied."""
    file = tmp_path_factory.mktemp("remote") / "filled.sqlite"
    with Client(f"sqlite:///{file}") as client:
        migrate(client.database)
        fill(client)
        made = client.tokens.create("tests", list(Right))
        client.tokens.create("unused", ["view"], queues=["video"], expires_in="90d")
        client.database.run(touch_token, made.id)
    file.with_suffix(".token").write_text(made.secret)
    return file


@pytest.fixture(scope="session")
def token(filled: Path) -> str:
    """Of the filled database, with all rights."""
    return filled.with_suffix(".token").read_text()


class Copies(ExitStack):
    """Copies of the filled database, each with a client."""

    def __init__(self, filled: Path, folder: Path) -> None:
        super().__init__()
        self._filled = filled
        self._folder = folder

    def url(self) -> str:
        """The URL of another copy."""
        copy = self._folder / f"copy-{len(list(self._folder.glob('*.sqlite')))}.sqlite"
        shutil.copy(self._filled, copy)
        copy.with_name(f"{copy.name}.secret").write_text("the secret of a cluster")
        return f"sqlite:///{copy}"

    def client(self) -> Client:
        """A client of another copy."""
        return self.enter_context(Client(self.url()))


@pytest.fixture
def copies(filled: Path, tmp_path: Path) -> Iterator[Copies]:
    with Copies(filled, tmp_path) as copies:
        yield copies


class ServedApp:
    """A served app, and a client of it."""

    def __init__(self, shown: ShownApp, client: Client) -> None:
        self._shown = shown
        self.address = shown.address
        self.client = client

    def show(self, client: Client) -> Client:
        """Let the app show the database of a client, and return the client of the app."""
        self._shown.show(client)
        return self.client


@pytest.fixture(scope="session")
def served_app(token: str) -> Iterator[ServedApp]:
    with ShownApp.served() as shown, Client(shown.address, token=token) as client:
        yield ServedApp(shown, client)


@pytest.fixture
def database_client(copies: Copies) -> Client:
    """A client of the database that the app shows."""
    return copies.client()


@pytest.fixture
def remote(served_app: ServedApp, database_client: Client) -> Client:
    """The client of the app."""
    return served_app.show(database_client)
