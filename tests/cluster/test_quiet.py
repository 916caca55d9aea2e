"""An idle node, with default settings and one kind of task workers with two processes, asks its database little."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import psycopg
import pymysql
import pytest
from sqlalchemy.engine import make_url

from peerd.supervision import control
from peerd.testing import eventually
from tests.cluster.cluster import Cluster
from tests.cluster.conftest import MakeCluster
from tests.support.servers import ServerFactory

MOST: Final = 2.0
"""Statements per second."""
SETTLING: Final = 16.0
"""Seconds until the pauses between looks have grown."""
COUNTED: Final = 40.0
"""Seconds."""
DEFAULTS: Final[dict[str, Any]] = {
    "node": {"heartbeat_every": "2s"},
    "manager": {"every": "1s", "max_update": "30s", "inactive_after": "4s"},
    "workers": {"jobs": {"tasks": "jobs:jobs", "processes": 2}},
    "sections": {"cluster": {"secret": "a secret that all nodes share"}},
}
COUNTING = """
import os
import time
from sqlalchemy import event
from sqlalchemy.engine import Engine

@event.listens_for(Engine, "before_cursor_execute")
def count(connection, cursor, statement, *_):
    if not statement.startswith(("BEGIN", "PRAGMA")):
        with open(os.environ["STATEMENTS"], "a") as file:
            file.write(f'{time.time():.2f} {os.getpid()} {statement.split(chr(10))[0]}{chr(10)}')
"""

pytestmark = pytest.mark.slow


def rate_of(cluster: Cluster, count: Callable[[], float]) -> float:
    """Statements per second of one idle node."""
    [node] = cluster.up("one", **DEFAULTS)
    eventually(lambda: bool(control.call_agent(node.run_directory, "peerd.bell")["works"]), timeout=30)
    time.sleep(SETTLING)
    before, began = count(), time.monotonic()
    time.sleep(COUNTED)
    return (count() - before) / (time.monotonic() - began)


def test_on_mariadb(make_cluster: MakeCluster, private_server: ServerFactory) -> None:
    cluster = make_cluster(private_server("mariadb").url("peerd"))
    url = make_url(cluster.url)
    names = ("Com_select", "Com_insert", "Com_update", "Com_delete", "Questions", "Com_commit", "Com_rollback")

    with closing(pymysql.connect(host="127.0.0.1", port=url.port or 0, user="root")) as connection:

        def status() -> dict[str, int]:
            with connection.cursor() as cursor:
                cursor.execute("SHOW GLOBAL STATUS")
                return {name: int(value) for name, value in cursor.fetchall() if name in names}

        seen: list[dict[str, int]] = []

        def count() -> float:
            seen.append(status())
            return sum(seen[-1][name] for name in names[:4])

        rate = rate_of(cluster, count)
    print({name: (seen[-1][name] - seen[0][name]) / COUNTED for name in names})  # noqa: T201
    assert 0.3 < rate <= MOST


def test_on_postgresql(make_cluster: MakeCluster, private_server: ServerFactory) -> None:
    server = private_server("postgresql")
    cluster = make_cluster(server.url("peerd"))
    with closing(psycopg.connect(f"postgresql://peerd@127.0.0.1:{server.port}/peerd", autocommit=True)) as connection:
        connection.execute("ALTER DATABASE peerd SET log_statement = 'all'")
    sent = re.compile(r"(?:statement|execute [^:]*): \s*(?:SELECT|INSERT|UPDATE|DELETE|WITH)\b")
    rate = rate_of(cluster, lambda: len(sent.findall(server.log.read_text())))
    print(rate)  # noqa: T201
    assert 0.3 < rate <= MOST


def test_on_sqlite(cluster: Cluster, tmp_path: Path) -> None:
    folder = tmp_path / "counting"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(COUNTING)
    statements = tmp_path / "statements"
    statements.touch()
    cluster.environment |= {"PYTHONPATH": str(folder), "STATEMENTS": str(statements)}
    rate = rate_of(cluster, lambda: len(statements.read_text().splitlines()))
    print(rate)  # noqa: T201
    assert 0.3 < rate <= MOST
