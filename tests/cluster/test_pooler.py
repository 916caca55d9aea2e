"""A node whose processes and clients reach PostgreSQL through PgBouncer, in both modes that have transactions."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy.engine import Connection, make_url

from peerd.domain.errors import DatabaseRefused
from peerd.store.connection.database import Database
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN
from tests.cluster.conftest import MakeCluster
from tests.support.pgbouncer import PgBouncer
from tests.support.servers import DatabaseFactory, installed

EVERY_SECOND: dict[str, Any] = {"run": "scheduled:notes", "interval": "1s", "immediate": True}
MORE_THAN_PREPARED = 30
"""Enqueues of a client; psycopg prepares a statement at its sixth execution."""
FEWER_THAN_CLIENTS = {"pool_mode": "transaction", "default_pool_size": "3"}
SESSIONS = {"pool_mode": "session", "default_pool_size": "80", "ignore_startup_parameters": "options"}
IN_BERLIN = "ALTER DATABASE {} SET timezone = 'Europe/Berlin'"
Pooled = Callable[..., str]
"""Gives the address of a new database through PgBouncer with these settings."""


@pytest.fixture
def pooled(request: pytest.FixtureRequest, database_factory: DatabaseFactory) -> Iterator[Pooled]:
    with ExitStack() as afterwards:

        def start(**settings: str) -> str:
            direct = make_url(database_factory("postgresql"))
            address = direct.set(drivername="postgresql").render_as_string()
            with closing(psycopg.connect(address, autocommit=True)) as admin:
                admin.execute(IN_BERLIN.format(direct.database).encode())
            folder = Path(tempfile.mkdtemp(prefix="peerd-"))
            afterwards.callback(shutil.rmtree, folder)
            assert direct.port is not None
            pooler = PgBouncer(folder / "pgbouncer", direct.port, **settings)
            folder.chmod(0o755)  # it runs as another user when we are root
            installed("pgbouncer", request.node, pooler.start)
            afterwards.callback(pooler.stop)
            return pooler.url(str(direct.database))

        yield start


@pytest.mark.parametrize("settings", [FEWER_THAN_CLIENTS, SESSIONS], ids=["transaction", "session"])
def test_a_node_behind_a_pooler_works_schedules_and_loses_nothing_with_a_killed_worker(
    settings: dict[str, str], pooled: Pooled, make_cluster: MakeCluster
) -> None:
    cluster = make_cluster(pooled(**settings))  # which migrates
    [node] = cluster.up("a", schedules={"often": EVERY_SECOND})
    hanging = cluster.enqueue("first_hangs")
    cluster.wait_for(hanging, "began")
    many = [cluster.enqueue("quick", body={"n": n}) for n in range(MORE_THAN_PREPARED)]
    fails, hears = cluster.enqueue("fails_once"), cluster.enqueue("hears")
    cluster.wait_for(hears, "listens")
    assert cluster.enqueue("tells", body={"data": "it rains"}).result(timeout=WITHIN)["reached"] == 1
    assert [job.result(timeout=WITHIN)["n"] for job in many] == [*range(MORE_THAN_PREPARED)]
    assert (fails.result(timeout=WITHIN), hears.result(timeout=WITHIN)["data"]) == (1, "it rains")
    node.kill("jobs-1")
    assert cluster.done(hanging).lease == 2
    eventually(lambda: len(cluster.notes(event="scheduled")) > 1, timeout=WITHIN, message=cluster.describe)

    keeps_sessions = settings is SESSIONS
    eventually(lambda: node.doorbell()["works"] == keeps_sessions, timeout=WITHIN, message=lambda: str(node.doorbell()))
    doctor = node.peerd("doctor").stdout
    assert doctor.count("problem  ") == doctor.count("problem  fsync") == 1, doctor  # as the tests' servers have it
    assert ("the pooler gives the session to others" in doctor) is not keeps_sessions, doctor
    assert "prepared statement" not in node.log_text()


def test_operations_behind_a_pooler_have_the_settings_that_they_have_without_one_and_leave_none_behind(
    pooled: Pooled,
) -> None:
    def settings(connection: Connection) -> tuple[Any, ...]:
        names = ("timezone", "lock_timeout", "idle_in_transaction_session_timeout", "plan_cache_mode")
        return tuple(connection.exec_driver_sql(f"SHOW {name}").scalar_one() for name in names)

    with closing(Database(pooled(**FEWER_THAN_CLIENTS))) as database:
        assert database.run(settings) == ("UTC", "30s", "10s", "auto")
        assert database.run_short(settings) == ("UTC", "1s", "10s", "force_generic_plan")
        assert database.run_group(settings) == ("UTC", "1s", "10s", "force_generic_plan")
        assert database.read(settings) == ("Europe/Berlin", "0", "0", "auto")


@pytest.mark.parametrize(
    ("settings", "options", "remedy"),
    [
        ({"pool_mode": "statement"}, "", "set pool_mode = transaction or session"),
        (FEWER_THAN_CLIENTS, "?options=-csearch_path%3Dother", "which takes no options"),
        (FEWER_THAN_CLIENTS | {"serves": "another"}, "", "name the database in its own configuration"),
    ],
)
def test_what_a_pooler_refuses_names_it_and_the_remedy(
    settings: dict[str, str], options: str, remedy: str, pooled: Pooled
) -> None:
    with (
        closing(Database(pooled(**settings) + options)) as database,
        pytest.raises(DatabaseRefused, match=f"PgBouncer.*{remedy}"),
    ):
        database.run(lambda connection: connection.exec_driver_sql("SELECT 1"))
