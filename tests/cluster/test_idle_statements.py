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
from typing import Any, Final

import psycopg
import pymysql
import pytest
from sqlalchemy.engine import make_url

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
WORKERS: Final = {kind: {"tasks": "jobs:jobs", "processes": 2} for kind in ("jobs", "others")}
Sent = Counter[str]
"""How often each statement was sent, by its first words."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def assert_few_statements(cluster: Cluster, count: Callable[[], Sent]) -> None:
    """One idle node sends little; what it sent stands in the message."""
    [node] = cluster.up("one", workers=WORKERS, **DEFAULTS)
    node.wait_for_doorbell()
    time.sleep(WARM_UP_SECONDS)
    before, began = count(), time.monotonic()
    time.sleep(COUNT_SECONDS)
    sent, seconds = count() - before, time.monotonic() - began
    rate = sent.total() / seconds
    each = "".join(f"\n{number:6} {words}" for words, number in sent.most_common())
    assert 0.3 < rate <= MAX_STATEMENTS_PER_SECOND, f"{rate:.2f} statements per second:{each}"


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

        assert_few_statements(cluster, count)


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

        assert_few_statements(cluster, count)
    rate = (transactions[1] - transactions[0] - 1) / COUNT_SECONDS  # one was the question itself
    assert rate <= MAX_STATEMENTS_PER_SECOND


def first_words(statement: str) -> str:
    return " ".join(statement.split())[:90]
