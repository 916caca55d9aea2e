"""Fixtures: a disk in object stores of several makes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from peerd.storage.object_disk.bucket import ObjectBucket
from peerd.storage.object_disk.disk import ObjectDisk, create_object_disk, open_object_disk
from tests.support.object_store import ObjectStoreServer

CLUSTER = "c" * 32
SWIFT = pytest.param("swift", marks=pytest.mark.slow)
ON_SWIFT = pytest.mark.parametrize("server", [SWIFT], indirect=True)


@pytest.fixture(params=["moto", SWIFT])
def server(request: pytest.FixtureRequest, kept_servers: Callable[[str], ObjectStoreServer]) -> ObjectStoreServer:
    """An object store whose bucket is empty."""
    found = kept_servers(request.param)
    found.empty()
    return found


@pytest.fixture
def disk(server: ObjectStoreServer) -> ObjectDisk:
    options = server.options()
    create_object_disk(ObjectBucket(options), CLUSTER)
    return open_object_disk(options, CLUSTER, lambda _: 0)
