"""Fixtures of the conformance suite: the same tests, unchanged, on SQLite, MariaDB and PostgreSQL.

`store`       an empty, migrated database; one is kept for each kind and each worker of the run, and emptied per test
`world`       the same with helpers: nodes and processes of the test, tasks in every state

The modules in `ON_MORE_SERVERS` run on a Galera cluster too, in `make test-all`: what they hold, a server that does not
see yet what another one has committed could break. And they run on the newest MariaDB and PostgreSQL, and through
PgBouncer in transaction mode.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from peerd.store.connection.database import Database
from peerd.store.schema.migrate import migrate
from tests.store.file_steps import Catalogue
from tests.store.world import World, empty
from tests.support import server_session
from tests.support.migrated_databases import MigratedDatabases
from tests.support.server import ServerUnavailableError
from tests.support.server_kinds import MORE_SERVERS
from tests.support.servers import DATABASES, create_database
from tests.support.summary import note_database, note_missing_server

FOLDER: Final = Path(__file__).parent
StoreOf = Callable[[str], Database]
ON_MORE_SERVERS: Final = {
    *("test_claim", "test_limited_claims", "test_job_reservations"),
    *("test_outcomes", "test_rescue", "test_unique_keys", "test_enqueue", "test_limits"),
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out further servers where nothing but the fixture has chosen them, and no module of `ON_MORE_SERVERS`."""
    left_out = [item for item in items if _is_on_more_for_nothing(item)]
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


def _is_on_more_for_nothing(item: pytest.Item) -> bool:
    if item.path.parent != FOLDER or item.path.stem in ON_MORE_SERVERS or not isinstance(item, pytest.Function):
        return False
    chosen = any("store" in mark.args[0] for mark in item.iter_markers("parametrize"))
    return not chosen and hasattr(item, "callspec") and item.callspec.params.get("store") in MORE_SERVERS


@pytest.fixture(scope="session")
def kept_stores(
    tmp_path_factory: pytest.TempPathFactory, worker_id: str, migrated_databases: MigratedDatabases
) -> Iterator[StoreOf]:
    kept: dict[str, Database] = {}
    with ExitStack() as afterwards:

        def store_of(kind: str) -> Database:
            if kind not in kept:
                kept[kind] = Database(address_of(kind), pool_size=10)
                afterwards.callback(kept[kind].close)
                migrate(kept[kind])  # where it is not yet
            return kept[kind]

        def address_of(kind: str) -> str:
            if kind == "sqlite":
                return f"sqlite:///{shutil.copy(migrated_databases.file(), tmp_path_factory.mktemp('store'))}"
            server = server_session.shared_server(kind)
            if kind == "galera":
                return create_database(server, f"kept_{worker_id}_{secrets.token_hex(4)}")
            name = migrated_databases.take(server)
            afterwards.callback(migrated_databases.give_back, server, name)
            return server.url(name)

        yield store_of


@pytest.fixture(params=[*DATABASES, *(pytest.param(kind, marks=pytest.mark.slow) for kind in MORE_SERVERS)])
def store(request: pytest.FixtureRequest, kept_stores: StoreOf) -> Database:
    try:
        database = kept_stores(request.param)
    except ServerUnavailableError as error:
        note_missing_server(request.node, request.param)
        pytest.skip(f"NOT TESTED on {request.param}: {error}")
    note_database(request.node, request.param)
    database.run(empty)
    return database


@pytest.fixture
def catalogue(store: Database) -> Catalogue:
    return Catalogue(store)


@pytest.fixture
def world(store: Database) -> World:
    return World(store)
