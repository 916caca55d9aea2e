"""A transaction that stays open makes every claim slower: the agent notices, and reports its session."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
import sqlalchemy as sa

from peerd.agent.database_health import examine
from peerd.operate.diagnostics import examine_slowdowns, mysql, postgresql
from peerd.runtime.observability.events import DatabaseSlowdownDetected, Event, EventBus
from peerd.store.connection.database import Database
from peerd.testing import eventually
from tests.store.world import World
from tests.support.server_kinds import ON_SERVERS
from tests.support.servers import ServerFactory, as_admin

pytestmark = pytest.mark.slow

SERVERS = pytest.mark.parametrize("store", ON_SERVERS, indirect=True)


@pytest.fixture(autouse=True)
def everything_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mysql, "OLD_TRANSACTION", -1.0)
    monkeypatch.setattr(postgresql, "OLD_TRANSACTION", -1.0)


@contextmanager
def forgotten_view(store: Database) -> Iterator[str]:
    """A session that has only read and stays open, as a forgotten dump does; yields its number."""
    own = {"mysql": "connection_id()", "postgresql": "pg_backend_pid()"}[store.name]
    engine = sa.create_engine(store.url, isolation_level="REPEATABLE READ")
    with engine.connect() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM tasks")
        yield str(connection.exec_driver_sql(f"SELECT {own}").scalar_one())
    engine.dispose()


def events_of_agent(store: Database, node: str) -> list[DatabaseSlowdownDetected]:
    events: list[Event] = []
    asyncio.run(examine(store, node, EventBus(events.append)))
    return [event for event in events if isinstance(event, DatabaseSlowdownDetected)]


@SERVERS
def test_the_agent_of_one_node_reports_which_session_has_a_long_view_open(world: World) -> None:
    for node in ("a", "b"):
        world.node(node)
    with closing(Database(as_admin(world.store.url))) as store, forgotten_view(store) as session:
        # The server is shared: for a moment the oldest transaction may be another test's. MariaDB reads them anew
        # only when no session has queried them for a tenth of a second.
        [event] = eventually(
            lambda: [event for event in events_of_agent(store, "a") if session in event.remedy],
            timeout=60,
            every=0.2,
        )
        assert not events_of_agent(store, "b")
    assert session in event.message
    assert ("KILL" if world.store.name == "mysql" else "pg_terminate_backend") in event.remedy


def test_a_prepared_transaction_that_was_forgotten_is_named(private_server: ServerFactory) -> None:
    server = private_server("postgresql")
    url = server.url("peerd")
    at_once = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with at_once.connect() as connection:
        connection.exec_driver_sql("ALTER SYSTEM SET max_prepared_transactions = 5")
    server.stop()
    server.start()
    with at_once.connect() as connection, closing(Database(url)) as store:
        for statement in ("BEGIN", "CREATE TABLE one (id INT)", "PREPARE TRANSACTION 'forgotten one'"):
            connection.exec_driver_sql(statement)
        events = store.read(examine_slowdowns)
        assert [one.remedy for one in events] == ["COMMIT PREPARED 'forgotten one', or ROLLBACK PREPARED"]
        connection.exec_driver_sql("ROLLBACK PREPARED 'forgotten one'")
        assert store.read(examine_slowdowns) == []


@pytest.mark.parametrize("store", [pytest.param("galera")], indirect=True)
def test_on_galera_every_node_checks_because_servers_may_differ(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.node("a")
    world.node("b")
    with forgotten_view(world.store):
        eventually(lambda: events_of_agent(world.store, "b"), timeout=60, every=0.2)
    [members] = world.read(mysql.galera_members)
    assert members.message == "3 servers; this one is synced"
    monkeypatch.setattr(mysql, "MIN_GALERA_MEMBERS", 4)
    assert "nothing can be written" in world.read(mysql.galera_members)[0].message
    monkeypatch.setattr(mysql, "MAX_PAUSED_SHARE", -1.0)
    assert "waited for the slowest" in world.read(mysql.galera_flow_control)[0].message
