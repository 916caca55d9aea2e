"""Fixtures of the API: a database with some of everything, and the app on a socket of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from peerd import Client
from peerd.store.schema.migrate import migrate
from peerd.web import create_app
from tests.support.served_api import served


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """Of a database with tasks of several statuses."""
    with Client(f"sqlite:///{tmp_path / 'web.sqlite'}") as client:
        migrate(client.database)
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
