"""Huey on MySQL or MariaDB, by peewee (its SqlHuey), with results on, as by default."""

from __future__ import annotations

from urllib.parse import urlsplit

from huey.contrib.sql_huey import SqlHuey
from peewee import MySQLDatabase

from bench.peers.huey_tasks import HueyPeer


class Measured(HueyPeer):
    """One transaction for each dequeue; threads in one process."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        database = MySQLDatabase(
            address.path.strip("/"), host=address.hostname, port=address.port, user=address.username
        )
        super().__init__(url, SqlHuey("bench", database=database))
