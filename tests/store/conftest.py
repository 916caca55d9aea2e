"""Fixtures of the conformance suite: the same tests, unchanged, on SQLite, MariaDB and PostgreSQL.

`store`       an empty, migrated database; one is kept for each kind and each worker of the run, and emptied per test
`world`       the same with helpers: nodes and processes of the test, tasks in every state
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from peerd.store.connection.database import Database
from peerd.store.schema.migrate import migrate
from tests.store.world import World, empty
from tests.support import server_session
from tests.support.server import ServerUnavailableError
from tests.support.servers import DATABASES, create_database
from tests.support.summary import note_database, note_missing_server

StoreOf = Callable[[str], Database]


@pytest.fixture(scope="session")
def kept_stores(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[StoreOf]:
    kept: dict[str, Database] = {}
    with ExitStack() as afterwards:

        def store_of(kind: str) -> Database:
            if kind not in kept:
                name = f"kept_{worker_id}_{secrets.token_hex(4)}"  # each folder that imports the fixture has its own
                url = (
                    f"sqlite:///{tmp_path_factory.mktemp('store') / 'kept.sqlite'}"
                    if kind == "sqlite"
                    else create_database(server_session.shared_server(kind), name)
                )
                kept[kind] = Database(url, pool_size=10)
                afterwards.callback(kept[kind].close)
                migrate(kept[kind])
            return kept[kind]

        yield store_of


@pytest.fixture(params=[*DATABASES, pytest.param("galera", marks=pytest.mark.slow)])
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
def world(store: Database) -> World:
    return World(store)
