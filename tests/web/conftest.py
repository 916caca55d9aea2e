"""Fixtures of the API: a database with some of everything, and the app on a socket of this machine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import httpx
import pytest

from peerd import Client, Role
from peerd.operate import passwords
from peerd.store.access.users import add_user
from peerd.web import create_app
from tests.support.served_api import served
from tests.web.access_world import PASSWORD


@pytest.fixture
def client(tmp_path: Path, migrated_file: Path) -> Iterator[Client]:
    """Of a database with tasks of several statuses."""
    with Client(f"sqlite:///{shutil.copy(migrated_file, tmp_path / 'web.sqlite')}") as client:
        for number in range(5):
            client.enqueue("video", name="transcode", body={"source": f"{number}.mp4"}, priority=number)
        client.enqueue("mail", start_in="1h", unique="once", text="no JSON")
        client.enqueue("mail", bytes=b"\xff\x00")
        client.tasks.cancel(client.enqueue("mail").id, "<script>alert(1)</script>")
        yield client


@pytest.fixture
def address(client: Client) -> Iterator[str]:
    """The URL of the app, which a thread serves."""
    with served(create_app(client)) as address:
        yield address


@pytest.fixture
def http(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{address}/api/v1") as http:
        yield http


@cache
def password_hash() -> str:
    return passwords.hash_password(PASSWORD)


@pytest.fixture
def users(client: Client) -> Client:
    """The client of a database with a user of each role."""
    for role in Role:
        client.database.run(add_user, role.value, role, password_hash())
    return client
