"""Fixtures of the pages: a database with some of everything, hostile texts included, and the app on a socket."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from peerd import BulkCancel, Client, Role, TaskFilter
from peerd.config.settings import AccessSettings
from peerd.operate.new_schedule import build_schedule
from peerd.store import schedules
from peerd.store.access.users import add_user
from peerd.store.files.checks import postpone_check
from peerd.store.files.disk_counts import count_copies, write_counts
from peerd.store.nodes import nodes
from peerd.store.schedule_runs import NodeIdentity
from peerd.store.schema.tables import alerts, attempts, processes, schedule_runs, task_logs, tasks
from tests.pages.addresses import NODE, SCHEDULE
from tests.store.file_steps import Catalogue
from tests.web.access_world import PASSWORD, serving
from tests.web.conftest import password_hash

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)> \u202e evil \x1b[31m {{ 7*7 }} '\""
Visit = Callable[[str], httpx.Client]


@pytest.fixture
def client(tmp_path: Path, migrated_file: Path) -> Iterator[Client]:
    """Of a database with tasks of several statuses, a node, a schedule, a limit and a bulk action."""
    with Client(f"sqlite:///{shutil.copy(migrated_file, tmp_path / 'pages.sqlite')}") as client:
        for number in range(5):
            client.enqueue("video", name="transcode", body={"source": f"{number}.mp4"}, priority=number)
        client.enqueue("mail", start_in="1h", unique="once", text="no JSON")
        client.enqueue("mail", bytes=b"\xff\x00")
        client.tasks.cancel(client.enqueue("mail").id, "not wanted")
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
    for table, row in (
        (attempts, {**failed, "started_at": now, "ended_at": now}),
        (task_logs, {**line, "at": now}),
        (processes, {**process, "role": "worker", "started_at": now, "checked_at": now, "ended_at": now}),
        (schedule_runs, {**run, "created_at": now}),
        (alerts, {**alert, "raised_at": now, "last_seen_at": now, "times": 1}),
    ):
        connection.execute(sa.insert(table), row)


@pytest.fixture
def address(client: Client) -> Iterator[str]:
    """The URL of the app, where there are no users."""
    with serving(client, AccessSettings()) as address:
        yield address


@pytest.fixture
def visitor(address: str) -> Iterator[httpx.Client]:
    """A browser without JavaScript, on the machine of the app."""
    with httpx.Client(base_url=address, headers={"origin": address}) as http:
        yield http


@pytest.fixture
def visit_as(client: Client) -> Iterator[Visit]:
    """Browsers of users that have logged in by the page."""
    for role in Role:
        client.database.run(add_user, role.value, role, password_hash())
    opened: list[httpx.Client] = []
    with serving(client, AccessSettings()) as address:

        def visit(name: str) -> httpx.Client:
            http = httpx.Client(base_url=address, headers={"origin": address})
            opened.append(http)
            answer = http.post("/login", data={"name": name, "password": PASSWORD, "next": "/"})
            assert (answer.status_code, answer.headers["location"]) == (303, "/")
            return http

        yield visit
        for http in opened:
            http.close()


def write_hostile_texts(client: Client) -> None:
    """Markup and worse in every column of text that a task can carry, by SQL."""

    def write(connection: Any) -> None:
        texts = ("name", "error", "result", "body", "progress_note", "unique_key", "limit_key", "trace_context")
        values = dict.fromkeys(texts, HOSTILE[:200])
        connection.execute(sa.update(tasks).where(tasks.c.id == 1).values(values | {"status": "dead"}))

    client.database.run(write)
