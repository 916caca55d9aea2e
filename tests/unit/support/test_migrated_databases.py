"""A database that was used before is like a new one, and is not used again if it may not be."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from peerd.store.connection.database import Database
from tests.support import server_session
from tests.support.migrated_databases import MigratedDatabases
from tests.support.rows import rows
from tests.support.server import DatabaseServer
from tests.support.servers import DatabaseFactory

pytestmark = pytest.mark.slow


@pytest.fixture(params=["mariadb", "postgresql"])
def server(request: pytest.FixtureRequest, database_factory: DatabaseFactory) -> DatabaseServer:
    database_factory(request.param)  # skips this test where there is none
    found = server_session.shared_server(request.param)
    assert isinstance(found, DatabaseServer)
    return found


@pytest.fixture
def databases(worker_id: str, tmp_path: Path) -> MigratedDatabases:
    return MigratedDatabases(f"{worker_id}_own", tmp_path)


@rows("change", [
    "CREATE TABLE further (id integer)", "ALTER TABLE tasks ADD COLUMN further integer", "DROP INDEX {index}",
    "CREATE TRIGGER further {trigger}",
])  # fmt: skip
def test_one_with_other_definitions_is_dropped(
    server: DatabaseServer, databases: MigratedDatabases, change: str
) -> None:
    name = databases.take(server)
    mysql = server.kind == "mariadb"
    words = {
        "index": "tasks_due ON tasks" if mysql else "tasks_due",
        "trigger": "BEFORE DELETE ON tasks FOR EACH ROW SET @x = 1"
        if mysql
        else "BEFORE UPDATE ON tasks FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    }
    with closing(Database(server.url(name))) as database:
        database.run(lambda connection: connection.exec_driver_sql(change.format(**words)).close())
    databases.give_back(server, name)
    assert databases.take(server) != name


def test_one_that_a_session_still_has_is_dropped(server: DatabaseServer, databases: MigratedDatabases) -> None:
    name = databases.take(server)
    engine = sa.create_engine(server.url(name))
    with engine.connect():
        databases.give_back(server, name)
    engine.dispose()
    assert databases.take(server) != name
