"""Fixtures: a catalogue on each database, three served nodes, and clients of the database and of a server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from peerd import Client, Right
from peerd.domain.files import DiskKind
from peerd.storage.object_disk.options import ObjectDiskOptions
from peerd.storage.object_disk.place import create_disk_at
from peerd.storage.uploading import sending, sources
from peerd.store.connection.database import Database
from peerd.store.files.disks import cluster_identity, register_disk
from tests.storage.breaking import MIB
from tests.storage.nodes import SECRET, ServedNode, StorageCluster
from tests.storage.object_cluster import Build, ObjectCluster
from tests.store.conftest import StoreOf
from tests.store.conftest import kept_stores as kept_stores  # noqa: PLC0414 - pytest finds fixtures by their names here
from tests.store.conftest import store as store  # noqa: PLC0414
from tests.store.file_steps import Catalogue
from tests.store.world import empty
from tests.support.object_store import ObjectStoreServer, moto_server, swift_server
from tests.web.access_world import serving


@pytest.fixture
def catalogue(store: Database) -> Catalogue:
    return Catalogue(store)


@pytest.fixture
def cluster(tmp_path: Path, one_catalogue: Catalogue) -> Iterator[StorageCluster]:
    """Three nodes with a disk each, `a`, `b` and `c`; they are served within a twentieth of a second."""
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


@pytest.fixture
def address(program: Client, secret: str) -> Iterator[str]:
    """That of the server; since there is a token, nobody may do anything without one."""
    with serving(program) as address:
        yield address


@pytest.fixture
def remote(address: str, secret: str) -> Iterator[Client]:
    """A client that has the address of a server and a token alone."""
    with Client(address, token=secret) as client:
        yield client


@pytest.fixture(params=["database", pytest.param("server", marks=pytest.mark.slow)])
def client(request: pytest.FixtureRequest, program: Client) -> Iterator[Client]:
    """A client of the database, which reaches the nodes; and one of a server, which relays for it."""
    if request.param == "database":
        yield program
        return
    everything = program.tokens.create("studio", list(Right)).secret
    with serving(program) as address, Client(address, token=everything) as remote:
        yield remote


@pytest.fixture(scope="session")
def kept_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], ObjectStoreServer]]:
    """Object stores of several makes: each is started when the first test wants it."""
    makes = {"moto": moto_server, "swift": swift_server}
    with ExitStack() as running:
        yield cache(lambda make: running.enter_context(makes[make](tmp_path_factory.mktemp(make))))


@pytest.fixture
def moto(kept_servers: Callable[[str], ObjectStoreServer]) -> ObjectStoreServer:
    """Moto, whose bucket is empty."""
    kept_servers("moto").empty()
    return kept_servers("moto")


@pytest.fixture
def build(tmp_path: Path, one_catalogue: Catalogue) -> Iterator[Build]:
    """Make a cluster: the names of nodes with a disk and the object store, with a disk alone, with the store alone."""
    with ExitStack() as served:

        def build(options: ObjectDiskOptions, *, both: str = "", folders: str = "", stores: str = "") -> ObjectCluster:
            store = one_catalogue.store
            identity = create_disk_at(options, store.run(cluster_identity))
            number = store.run(
                lambda c: register_disk(c, identity.disk, path=options.place, node_id=None, kind=DiskKind.S3)
            )
            nodes = [ServedNode(name, tmp_path, one_catalogue, object_stores=(options,)) for name in both]
            nodes += [ServedNode(name, tmp_path, one_catalogue) for name in folders]
            nodes += [ServedNode(name, tmp_path, one_catalogue, disks=0, object_stores=(options,)) for name in stores]
            for node in nodes:
                served.enter_context(node.served())
            one_catalogue.bucket()
            cluster = ObjectCluster(one_catalogue, nodes, number)
            cluster.refresh()
            return cluster

        yield build


@pytest.fixture
def film(tmp_path: Path) -> Path:
    """A file of three chunks, and of five small parts."""
    path = tmp_path / "film.mov"
    path.write_bytes(os.urandom(9_000_000))
    return path


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries follow each other soon, and nodes do not report their addresses again: tests change them."""
    monkeypatch.setattr("peerd.operate.remote.files.PAUSES", (0.1, 0.2, 0.4))
    monkeypatch.setattr("peerd.storage.server.app.REFRESH_EVERY", 3_600.0)


@pytest.fixture
def small_parts(short_pauses: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, and parts are small."""
    monkeypatch.setattr(sources, "FILE_PART", 2 * MIB)
    monkeypatch.setattr(sources, "PART_TAKES", -1.0)
    monkeypatch.setattr(sources, "STREAM_PART", 2 * MIB)
    monkeypatch.setattr(sending, "FIRST_PAUSE", 0.02)
