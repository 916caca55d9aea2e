"""Huey on SQLite (its SqliteHuey), in WAL mode: at synchronous = FULL, or NORMAL where the address says so."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

from huey.api import Huey
from huey.storage import SqliteStorage

from bench.peers.huey_tasks import HueyPeer


class Measured(HueyPeer):
    """Threads in one process."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        synchronous = parse_qs(address.query).get("synchronous", ["FULL"])[0]

        class Storage(SqliteStorage):  # type: ignore[misc]
            """Its own setting, fsync, knows FULL and OFF only."""

            def _create_connection(self) -> Any:
                connection = super()._create_connection()
                connection.execute(f"PRAGMA synchronous = {synchronous}")
                return connection

        super().__init__(url, Huey("bench", storage_class=Storage, filename=address.path[1:]))
