"""Fixtures of clients of a server: a database with some of everything, copies of it, and a served app."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI

from peerd import Client
from peerd.domain.outcome import Done, Failed
from peerd.domain.schedule import RunStatus, Schedule
from peerd.store import schedule_runs, schedules
from peerd.store.nodes import nodes
from peerd.store.schedule_runs import NodeIdentity
from peerd.store.schema.migrate import migrate
from peerd.store.schema.sql_clock import seconds_from_now
from peerd.store.schema.tables import nodes as node_table
from peerd.web import create_app
from peerd.web.dependencies import CLIENT_STATE
from tests.cli.conftest import peerd
from tests.support.served_api import served
from tests.unit.operate.claiming_process import ClaimingProcess

__all__ = ["peerd"]  # the fixture

REFRESH = Schedule(name="refresh", run="studio:refresh", interval=60.0, args=["a"])
NIGHTLY = Schedule(name="nightly", queue="video", task="clean", cron="0 3 * * *", timezone="Europe/Berlin")


def fill(client: Client) -> None:
    """Tasks 1 to 9 of many statuses, two nodes, two schedules with a run each, a limit, and a paused queue."""
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
    ClaimingProcess(client.database, "old")
    silent = node_table.update().where(node_table.c.name == "old").values(checked_at=seconds_from_now(-86_400))
    client.database.run(lambda connection: connection.execute(silent))


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database's file; to be copied."""
    file = tmp_path_factory.mktemp("remote") / "filled.sqlite"
    with Client(f"sqlite:///{file}") as client:
        migrate(client.database)
        fill(client)
    return file


class Copies:
    """Copies of the filled database, each with a client."""

    def __init__(self, filled: Path, folder: Path) -> None:
        self._filled = filled
        self._folder = folder
        self._clients: list[Client] = []

    def url(self) -> str:
        """The URL of another copy."""
        copy = self._folder / f"copy-{len(list(self._folder.glob('*.sqlite')))}.sqlite"
        shutil.copy(self._filled, copy)
        return f"sqlite:///{copy}"

    def client(self) -> Client:
        """A client of another copy."""
        self._clients.append(Client(self.url()))
        return self._clients[-1]

    def close(self) -> None:
        for client in self._clients:
            client.close()


@pytest.fixture
def copies(filled: Path, tmp_path: Path) -> Iterator[Copies]:
    copies = Copies(filled, tmp_path)
    yield copies
    copies.close()


class ServedApp:
    """A served app, and a client of it."""

    def __init__(self, app: FastAPI, address: str) -> None:
        self._app = app
        self.address = address
        self.client = Client(address, token="peerd_0123456789")

    def show(self, client: Client) -> Client:
        """Let the app show the database of a client, and return the client of the app."""
        setattr(self._app.state, CLIENT_STATE, client)
        return self.client


@pytest.fixture(scope="session")
def served_app() -> Iterator[ServedApp]:
    app = create_app()
    with served(app) as address:
        one = ServedApp(app, address)
        yield one
        one.client.close()


@pytest.fixture
def database_client(copies: Copies) -> Client:
    """A client of the database that the app shows."""
    return copies.client()


@pytest.fixture
def remote(served_app: ServedApp, database_client: Client) -> Client:
    """The client of the app."""
    return served_app.show(database_client)
