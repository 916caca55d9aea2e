"""Fixtures of the pages: a database with some of everything, hostile texts included, and the app on a socket."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
import sqlalchemy as sa

from peerd import BulkCancel, Client, TaskFilter
from peerd.operate.new_schedule import build_schedule
from peerd.store import nodes, schedules
from peerd.store.files.checks import postpone_check
from peerd.store.files.disks import count_copies, write_counts
from peerd.store.schedule_runs import NodeIdentity
from peerd.store.schema.tables import alerts, attempts, disks, processes, schedule_runs, task_logs
from peerd.store.schema.tables import nodes as node_table
from peerd.store.schema.types import seconds_from_now
from tests.pages.addresses import NODE, SCHEDULE
from tests.store.file_steps import Catalogue
from tests.support.quick_passwords import quick_passwords
from tests.support.served_api import everyone
from tests.web.access_world import PASSWORD, serving
from tests.web.conftest import add_users, filled_file

__all__ = ["filled_file", "quick_passwords"]  # fixtures

NOW = seconds_from_now(0.0)
Visit = Callable[[str], httpx.Client]


@pytest.fixture(scope="session")
def filled_pages(filled_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with tasks of several statuses, a node, a schedule, a limit and a bulk action; to be copied."""
    file = Path(shutil.copy(filled_file, tmp_path_factory.mktemp("pages") / "filled.sqlite"))
    with Client(f"sqlite:///{file}") as client:
        incarnation = nodes.new_incarnation()
        node_id = client.database.run(nodes.register_incarnation, NODE, incarnation, replaces=None)
        assert node_id is not None
        node = NodeIdentity(node_id, incarnation)
        schedule = build_schedule(SCHEDULE, {"queue": "mail", "cron": "0 3 * * *"})
        client.database.run(schedules.declare_schedule, schedule, node, 30.0)
        client.limits.set("video", running=3)
        client.queues.pause("mail")
        client.bulk.create(BulkCancel("x"), TaskFilter(queue="mail", status="scheduled"))
        client.database.run(add_history, node_id, incarnation)
        add_files(client, node_id)
    return file


@pytest.fixture
def client(tmp_path: Path, filled_pages: Path) -> Iterator[Client]:
    """Of a copy of that database, in which the node has just been heard of."""
    with Client(f"sqlite:///{shutil.copy(filled_pages, tmp_path / 'pages.sqlite')}") as client:
        for heard_of in (sa.update(disks).values(seen_at=NOW), sa.update(node_table).values(checked_at=NOW)):
            client.database.run(sa.Connection.execute, heard_of)
        yield client


def add_files(client: Client, node_id: int) -> None:
    """A disk, and files of which each has one copy where two are wanted."""
    catalogue = Catalogue(client.database, {NODE: node_id})
    bucket, disk = catalogue.bucket(), catalogue.disk(NODE)
    keys = ("2026/one.mov", "2026/raw/two.mov", "readme.txt")
    put = [catalogue.put(bucket, key, disk, size=1_500_000) for key in keys]
    client.database.run(
        postpone_check, put[-1].id, 60.0, danger=1, health="at-risk", blocked="no other node has a disk"
    )
    client.database.run(write_counts, disk, client.database.read(count_copies, disk))


def add_history(connection: sa.Connection, node_id: int, incarnation: str) -> None:
    """What running nodes write: a failed attempt of task 1 with a log line, an ended process, a run, an alert."""
    now = datetime.now(UTC)
    failed = {"task_id": 1, "lease": 1, "number": 1, "node_id": node_id, "process_id": 1, "outcome": "failure"}
    line = {"task_id": 1, "lease": 1, "sequence": 1, "attempt": 1, "level": "info", "logger": "x", "message": "began"}
    process = {"id": 1, "node_id": node_id, "incarnation": incarnation, "kind": "video", "slot": "video-1", "pid": 17}
    run = {"schedule": SCHEDULE, "tick_at": now, "origin": "tick", "number": 1, "status": "failed", "node_id": node_id}
    alert = {"kind": "node-silent", "subject": NODE, "node": NODE, "slot": "agent", "pid": 18, "text": "it is silent"}
    crash = {"lease": 2, "outcome": "crash", "cause": "killed by SIGABRT"}
    for table, row in (
        (attempts, {**failed, "started_at": now, "ended_at": now}),
        (attempts, {**failed, **crash, "started_at": now, "ended_at": now}),
        (task_logs, {**line, "at": now}),
        (processes, {**process, "role": "worker", "started_at": now, "checked_at": now, "ended_at": now}),
        (schedule_runs, {**run, "created_at": now}),
        (alerts, {**alert, "raised_at": now, "last_seen_at": now, "times": 1}),
    ):
        connection.execute(sa.insert(table), row)


@pytest.fixture
def address(client: Client) -> Iterator[str]:
    """The URL of the app, in a site on which everyone may do everything."""
    with serving(client, authenticate=everyone) as address:
        yield address


@pytest.fixture
def visitor(address: str) -> Iterator[httpx.Client]:
    """A browser without JavaScript, on the machine of the app."""
    with httpx.Client(base_url=address, headers={"origin": address}) as http:
        yield http


@pytest.fixture
def visit_as(client: Client) -> Iterator[Visit]:
    """Browsers of users that have logged in by the page."""
    add_users(client)
    with serving(client) as address, ExitStack() as opened:

        def visit(name: str) -> httpx.Client:
            http = opened.enter_context(httpx.Client(base_url=address, headers={"origin": address}))
            answer = http.post("/login", data={"name": name, "password": PASSWORD, "next": "/"})
            assert (answer.status_code, answer.headers["location"]) == (303, "/")
            return http

        yield visit
