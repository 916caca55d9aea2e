"""Fixtures of the API: a database with some of everything, and the app on a socket of this machine.

The app is made and served once for a module; each test has a database of its own, which the app then shows.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from peerd import Client, Role
from peerd.store.users import add_user
from tests.support.migrated_databases import MigratedDatabases
from tests.support.quick_passwords import quick_hash, quick_passwords
from tests.support.served_api import ShownApp, everyone
from tests.web.access_world import PASSWORD

__all__ = ["quick_passwords"]  # the fixture


@pytest.fixture(scope="session")
def filled_file(migrated_databases: MigratedDatabases, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with tasks of several statuses, to be copied."""
    file = Path(shutil.copy(migrated_databases.file(), tmp_path_factory.mktemp("filled") / "web.sqlite"))
    with Client(f"sqlite:///{file}") as client:
        for number in range(5):
            client.enqueue("video", name="transcode", body={"source": f"{number}.mp4"}, priority=number)
        client.enqueue("mail", start_in="1h", unique="once", text="no JSON")
        client.enqueue("mail", bytes=b"\xff\x00")
        client.tasks.cancel(client.enqueue("mail").id, "<script>alert(1)</script>")
    return file


@pytest.fixture
def client(tmp_path: Path, filled_file: Path) -> Iterator[Client]:
    with Client(f"sqlite:///{shutil.copy(filled_file, tmp_path / 'web.sqlite')}") as client:
        yield client


@pytest.fixture
def users(client: Client) -> Client:
    """The client, with a user of each role."""
    add_users(client)
    return client


@pytest.fixture(scope="module")
def shown_app() -> Iterator[ShownApp]:
    """The app, which a thread serves."""
    with ShownApp.served(everyone) as app:
        yield app


@pytest.fixture
def address(shown_app: ShownApp, client: Client) -> str:
    """The URL of the app, which shows the database of the client."""
    shown_app.show(client)
    return shown_app.address


@pytest.fixture
def http(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{address}/api/v1") as http:
        yield http


def add_users(client: Client) -> None:
    """A user of each role."""
    for role in Role:
        client.database.run(add_user, role.value, role, quick_hash(PASSWORD))
