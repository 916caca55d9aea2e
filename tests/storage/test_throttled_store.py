"""Nodes whose object store refuses requests because there are too many: for a while, and for ever."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from threading import Event

import pytest
import sqlalchemy as sa

from peerd.domain.files import DiskState
from peerd.operate.client import Client
from peerd.storage import local_disks
from peerd.storage.disk.content_id import ContentId
from peerd.storage.disk.errors import DiskBusy
from peerd.storage.object_disk import bucket as bucket_module
from peerd.storage.object_disk import disk as disk_module
from peerd.storage.object_disk.disk import object_name
from peerd.storage.overview import DiskCondition
from peerd.store.files.disks import DiskRow, list_disks
from peerd.store.schema.tables import disks, file_copies, tasks
from peerd.store.schema.types import seconds_from_now
from tests.storage.nodes import SECRET
from tests.storage.object_cluster import Build, ObjectCluster, names_of
from tests.support.object_store import ObjectStoreServer
from tests.support.throttling import ThrottlingProxy, throttling_proxy

pytestmark = pytest.mark.slow
MIB = 1024 * 1024
REFUSED = "refuses more requests"


@pytest.fixture
def proxy(moto: ObjectStoreServer) -> Iterator[ThrottlingProxy]:
    with throttling_proxy(moto.url) as proxy:
        yield proxy


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The object store is looked at each time, requests are given up soon, and tried again at once."""
    monkeypatch.setattr(bucket_module, "FIRST_PAUSE", timedelta(milliseconds=10))
    monkeypatch.setattr(disk_module, "CHECK_EVERY", 0.0)
    monkeypatch.setattr(disk_module, "BUSY_FOR", 0.0)
    monkeypatch.setattr(bucket_module, "RETRY_TIMEOUT", timedelta(seconds=0.2))
    monkeypatch.setattr(bucket_module, "QUICK_RETRY_TIMEOUT", timedelta(seconds=0.2))
    monkeypatch.setattr(local_disks, "PAUSE_AFTER_ERROR", 0.0)
    monkeypatch.setattr(local_disks, "PAUSE_WHILE_BUSY", 0.0)


def disk_row(cluster: ObjectCluster) -> DiskRow:
    return next(row for row in cluster.catalogue.store.read(list_disks) if row.id == cluster.store_disk)


def states(cluster: ObjectCluster) -> set[str]:
    """Those of the copies in the object store."""
    found = sa.select(file_copies.c.state).where(file_copies.c.disk_id == cluster.store_disk)
    return set(cluster.catalogue.store.read(lambda connection: connection.execute(found).scalars().all()))


def test_an_object_store_that_refuses_for_ever_is_there_with_a_problem_and_all_its_copies_count(
    build: Build, moto: ObjectStoreServer, proxy: ThrottlingProxy
) -> None:
    cluster = build(moto.options(endpoint=proxy.url, verify_every=3600.0), both="a", folders="b")
    cluster.want(copies=2, object_copies=1)
    content = os.urandom(9 * MIB)
    file_id = cluster.put("b", "f", content)
    cluster.keep()
    assert states(cluster) == {"stored"}
    cluster.catalogue.change(file_copies, sa.true(), verified_at=seconds_from_now(-4000))
    cluster.catalogue.change(disks, disks.c.kind == "s3", seen_at=seconds_from_now(-5000))
    planned = cluster.put("b", "planned", content)
    proxy.refuse()
    outcomes = cluster.keep()
    assert cluster.catalogue.copies(planned)[cluster.store_disk] == "planned"
    assert all(REFUSED in str(outcome) for _, name, outcome in outcomes if name == "copy-shared")
    verified = [outcome for _, name, outcome in outcomes if name == "verify-shared"]
    assert verified
    assert all(REFUSED in str(outcome) for outcome in verified)
    row = disk_row(cluster)
    assert REFUSED in (row.problem or "")
    assert (row.state, row.missing_at) == (DiskState.ACTIVE.value, None)
    assert states(cluster) == {"stored", "planned"}
    with Client(cluster.catalogue.store, secret=SECRET) as client:
        [figures] = [disk for disk in client.files.overview().disks if disk.id == cluster.store_disk]
        assert figures.condition is DiskCondition.ONLINE
        assert REFUSED in (figures.problem or "")
        assert [file.health for file in client.files.kept("films").files] == ["whole", "at-risk"]
    assert cluster.get("a", "f") == content, "it is read from the folder of b"
    later = cluster.put("b", "later", content)
    cluster.keep()
    assert cluster.store_disk not in cluster.catalogue.copies(later)
    proxy.pass_all()
    cluster.keep()
    assert disk_row(cluster).problem is None
    assert states(cluster) == {"stored"}
    assert names_of(moto) == [object_name(ContentId(one)) for one in (file_id, planned, later)]


def test_small_contents_that_cannot_be_read_from_a_busy_object_store_are_not_taken_for_missing(
    build: Build, moto: ObjectStoreServer, proxy: ThrottlingProxy
) -> None:
    cluster = build(moto.options(endpoint=proxy.url), folders="a", stores="b")
    cluster.want(copies=1, object_copies=1)
    contents = {f"f{number}": os.urandom(1_000 + number) for number in range(5)}
    for key, content in contents.items():
        cluster.put("b", key, content)
    cluster.want(copies=2, object_copies=1)
    proxy.refuse(only=lambda request: request.method == "GET" and "contents" in request.target)
    copied = [outcome for _, name, outcome in cluster.keep() if name == "copy"]
    assert copied
    assert all("it cannot read its disk now" in str(outcome) for outcome in copied)
    refused = len(proxy.refused)
    assert refused < 15 * len(copied), "of many contents only the first is asked for again and again"
    assert cluster.catalogue.count(tasks, tasks.c.name == "verify-shared") == 0, "no copy is suspected"
    assert states(cluster) == {"stored"}
    proxy.pass_all()
    cluster.keep()
    assert len(cluster.nodes["a"].contents()) == len(contents)
    cluster.catalogue.change(file_copies, sa.true(), verified_at=seconds_from_now(-4000))
    ids = [int(name, 16) for name in cluster.nodes["a"].contents()]
    proxy.refuse(only=lambda request: request.target.endswith(object_name(ContentId(ids[-1]))))
    with pytest.raises(DiskBusy, match=REFUSED):
        cluster.nodes["b"].duties.verify(cluster.store_disk, [f"{one:016x}" for one in ids], Event(), lambda *_: None)
    is_verified = file_copies.c.verified_at > seconds_from_now(-1000)
    assert cluster.catalogue.count(file_copies, is_verified) == 4, "those before it are verified"
