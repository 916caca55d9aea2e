"""Fixtures: object stores of several makes, and a disk in one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from peerd.storage.object_disk.bucket import ObjectBucket
from peerd.storage.object_disk.disk import ObjectDisk, create_object_disk, open_object_disk
from tests.support.object_store import ObjectStoreServer, moto_server, swift_server

CLUSTER = "c" * 32
SERVERS = {"moto": moto_server, "swift": swift_server}


@pytest.fixture(scope="session")
def kept_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ObjectStoreServer]]:
    """Each server is started when the first test wants it."""
    with ExitStack() as running:
        servers: dict[str, ObjectStoreServer] = {}

        class Starting(dict[str, ObjectStoreServer]):
            def __missing__(self, make: str) -> ObjectStoreServer:
                folder = tmp_path_factory.mktemp(make)
                self[make] = running.enter_context(SERVERS[make](folder))
                return self[make]

        servers = Starting()
        yield servers


@pytest.fixture(params=list(SERVERS))
def server(request: pytest.FixtureRequest, kept_servers: dict[str, ObjectStoreServer]) -> ObjectStoreServer:
    """An object store whose bucket is empty."""
    found = kept_servers[request.param]
    found.empty()
    return found


@pytest.fixture
def disk(server: ObjectStoreServer) -> ObjectDisk:
    options = server.options()
    create_object_disk(ObjectBucket(options), CLUSTER)
    return open_object_disk(options, CLUSTER, lambda _: 0)
