"""An idle node with default settings sends its database little: two statements a second at the most, of any kind.

The servers count, so that nothing is missed: MariaDB by its general log, and its number of pings, PostgreSQL by its log
of statements. BEGIN, COMMIT, ROLLBACK, SET and the check of a connection count as all others do.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import psycopg
import pymysql
import pytest
from sqlalchemy.engine import make_url

from peerd.supervision.control import control_client
from peerd.testing import eventually
from tests.cluster.cluster import Cluster
from tests.cluster.conftest import MakeCluster
from tests.support.servers import ServerFactory

MAX_STATEMENTS_PER_SECOND: Final = 2.0
"""Statements per second."""
WARM_UP_SECONDS: Final = 35.0
"""Seconds until the pauses between polls have grown, and no unknown claim can exist."""
COUNT_SECONDS: Final = 60.0
"""Seconds: the rarest chores that an idle node has come once in them."""
DEFAULTS: Final[dict[str, Any]] = {
    "node": {"heartbeat_every": "2s"},
    "manager": {"every": "1s", "max_update": "30s", "inactive_after": "4s"},
    "sections": {"cluster": {"secret": "a secret that all nodes share"}},
}
ONE_KIND: Final = {"jobs": {"tasks": "jobs:jobs", "processes": 2}}
TWO_KINDS: Final = {
    "jobs": {"tasks": "jobs:jobs", "processes": 2},
    "others": {"tasks": "jobs:jobs", "processes": 2},
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

Sent = Counter[str]
"""How often each statement was sent, by its first words."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def assert_few_statements(cluster: Cluster, workers: dict[str, Any], count: Callable[[], Sent]) -> None:
    """One idle node sends little; what it sent stands in the message."""
    [node] = cluster.up("one", workers=workers, **DEFAULTS)
    eventually(lambda: bool(control_client.call_agent(node.run_directory, "peerd.doorbell")["works"]))
    time.sleep(WARM_UP_SECONDS)
    before, began = count(), time.monotonic()
    time.sleep(COUNT_SECONDS)
    sent, seconds = count() - before, time.monotonic() - began
    rate = sent.total() / seconds
    each = "".join(f"\n{number:6} {words}" for words, number in sent.most_common())
    log_text = f"{rate:.2f} statements per second, {MAX_STATEMENTS_PER_SECOND:g} are allowed:{each}"
    print(log_text)  # noqa: T201
    assert 0.3 < rate <= MAX_STATEMENTS_PER_SECOND, log_text


def test_on_mariadb(make_cluster: MakeCluster, private_server: ServerFactory) -> None:
    cluster = make_cluster(private_server("mariadb").url("peerd"))
    port = make_url(cluster.url).port or 0
    logged = (
        "SELECT command_type, CONVERT(argument USING utf8mb4) FROM mysql.general_log WHERE thread_id <> connection_id()"
    )

    with closing(pymysql.connect(host="127.0.0.1", port=port, user="root", autocommit=True)) as ours:
        with ours.cursor() as cursor:
            cursor.execute("SET GLOBAL log_output = 'TABLE'")
            cursor.execute("SET GLOBAL general_log = 'ON'")

        def count() -> Sent:
            with ours.cursor() as cursor:
                cursor.execute(logged)
                sent = Counter(first_words(f"{command}: {argument}") for command, argument in cursor.fetchall())
                cursor.execute("SHOW GLOBAL STATUS LIKE 'Com_admin_commands'")  # pings are not logged
                return sent + Counter({"Ping": int((cursor.fetchone() or ("", 0))[1])})

        assert_few_statements(cluster, TWO_KINDS, count)


def test_on_postgresql(make_cluster: MakeCluster, private_server: ServerFactory) -> None:
    server = private_server("postgresql")
    cluster = make_cluster(server.url("peerd"))
    logged = re.compile(r"LOG:  (?:statement|execute [^:]*|fastpath[^:]*): (.*)")
    with closing(psycopg.connect(f"postgresql://peerd@127.0.0.1:{server.port}/peerd", autocommit=True)) as ours:
        ours.execute("ALTER DATABASE peerd SET log_statement = 'all'")
        ours.execute("ALTER SYSTEM SET autovacuum = off")  # its transactions are counted too
        ours.execute("SELECT pg_reload_conf()")

        transactions: list[int] = []

        def count() -> Sent:
            row = ours.execute(
                "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'peerd'"
            ).fetchone()
            transactions.append(0 if row is None else int(row[0]))
            return Counter(first_words(found) for found in logged.findall(server.log.read_text(errors="replace")))

        assert_few_statements(cluster, TWO_KINDS, count)
    rate = (transactions[1] - transactions[0] - 1) / COUNT_SECONDS  # one was the question itself
    print(f"{rate:.2f} transactions per second")  # noqa: T201
    assert rate <= MAX_STATEMENTS_PER_SECOND, (
        f"{rate:.2f} transactions per second, {MAX_STATEMENTS_PER_SECOND:g} are allowed"
    )


def test_on_sqlite(cluster: Cluster, tmp_path: Path) -> None:
    """SQLite has no server: the statements that the driver executes are counted."""
    folder = tmp_path / "counting"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(COUNTING)
    statements = tmp_path / "statements"
    statements.touch()
    cluster.environment |= {"PYTHONPATH": str(folder), "STATEMENTS": str(statements)}

    def count() -> Sent:
        lines = statements.read_text().splitlines()
        return Counter(first_words(line.split(" ", 2)[2]) for line in lines)

    assert_few_statements(cluster, ONE_KIND, count)


def first_words(statement: str) -> str:
    return " ".join(statement.split())[:90]
