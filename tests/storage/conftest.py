"""Fixtures: a catalogue on each database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from peerd import Client, Right
from peerd.store.connection.database import Database
from tests.storage.nodes import SECRET, ServedNode, StorageCluster
from tests.store.conftest import StoreOf
from tests.store.conftest import kept_stores as kept_stores  # noqa: PLC0414 - pytest finds fixtures by their names here
from tests.store.conftest import store as store  # noqa: PLC0414
from tests.store.file_steps import Catalogue
from tests.store.world import empty


@pytest.fixture
def catalogue(store: Database) -> Catalogue:
    return Catalogue(store)


@pytest.fixture
def cluster(tmp_path: Path, one_catalogue: Catalogue) -> Iterator[StorageCluster]:
    """Three nodes with a disk each, `a`, `b` and `c`."""
    with ExitStack() as served:
        nodes = [ServedNode(name, tmp_path, one_catalogue) for name in "abc"]
        for node in nodes:
            served.enter_context(node.served())
        yield StorageCluster(one_catalogue, nodes)


@pytest.fixture
def one_catalogue(kept_stores: StoreOf) -> Catalogue:
    """A catalogue on SQLite: for tests of disks and servers, on which the database has no effect."""
    database = kept_stores("sqlite")
    database.run(empty)
    return Catalogue(database)


@pytest.fixture
def program(cluster: StorageCluster) -> Iterator[Client]:
    """A client of the database, which the server has."""
    cluster.catalogue.bucket()
    cluster.refresh()
    with Client(cluster.catalogue.store, secret=SECRET) as client:
        yield client


@pytest.fixture
def secret(program: Client) -> str:
    """The secret of a token that reads and writes files, for a client of the server."""
    return program.tokens.create("studio", [Right.READ_FILES, Right.WRITE_FILES]).secret
