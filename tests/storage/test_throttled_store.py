"""Nodes whose object store refuses requests because there are too many: for a while, and for ever."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa

from peerd.domain.files import DiskState
from peerd.operate.client import Client
from peerd.storage import local_disks
from peerd.storage.disk.content_id import ContentId
from peerd.storage.object_disk import bucket as bucket_module
from peerd.storage.object_disk import disk as disk_module
from peerd.storage.object_disk.disk import object_name
from peerd.storage.overview import DiskCondition
from peerd.store.files.disks import DiskRow, list_disks
from peerd.store.schema.sql_clock import seconds_from_now
from peerd.store.schema.tables import disks, file_copies, tasks
from tests.cli.conftest import Peerd
from tests.cli.conftest import peerd as peerd  # noqa: PLC0414 - pytest finds fixtures by their names here
from tests.storage.nodes import SECRET, ask_node
from tests.storage.object_cluster import Build, ObjectCluster, names_of
from tests.storage.object_disk.test_throttling import first_tries
from tests.support.object_store import ObjectStoreServer
from tests.support.throttling import FOR_EVER, Refusal, ThrottlingProxy, throttling_proxy

pytestmark = pytest.mark.slow
MIB = 1024 * 1024
REFUSED = "refuses more requests"


@pytest.fixture
def proxy(moto: ObjectStoreServer) -> Iterator[ThrottlingProxy]:
    with throttling_proxy(moto.url) as proxy:
        yield proxy


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses are shorter, and the disk in the object store is looked at each time."""
    monkeypatch.setattr(bucket_module, "FIRST_PAUSE", timedelta(milliseconds=10))
    monkeypatch.setattr(disk_module, "CHECK_EVERY", 0.0)
    monkeypatch.setattr(disk_module, "BUSY_FOR", 0.0)


def body_of(disk: int, file_ids: list[int]) -> str:
    """The body of a task."""
    return msgspec.json.encode({"disk": disk, "files": [f"{one:016x}" for one in file_ids]}).decode()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are given up soon, and what has failed is tried again at once."""
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


def count_of_tasks(cluster: ObjectCluster, name: str) -> int:
    found = sa.select(sa.func.count()).where(tasks.c.name == name)
    return int(cluster.catalogue.store.read(lambda connection: connection.execute(found).scalar_one()))


@pytest.mark.parametrize("refusal", [Refusal(), Refusal(status=429, code="TooManyRequests", retry_after=3)])
def test_puts_gets_copies_verification_and_removal_survive_refusals(
    build: Build, moto: ObjectStoreServer, proxy: ThrottlingProxy, refusal: Refusal
) -> None:
    cluster = build(moto.options(endpoint=proxy.url, verify_every=3600.0), folders="a", stores="b")
    cluster.want(copies=2, object_copies=1)
    proxy.refuse(FOR_EVER, refusal, only=first_tries(4))
    contents = {"small": os.urandom(1_000), "large": os.urandom(17 * MIB)}
    for key, content in contents.items():
        cluster.put("a", key, content)
    in_store = cluster.put("b", "other", contents["small"])
    copied = cluster.run_tasks()
    assert {name for _, name, _ in copied} == {"copy", "copy-shared"}
    assert all(isinstance(outcome, dict) for *_, outcome in copied), copied
    assert {key: cluster.get("b", key) for key in contents} == contents
    cluster.nodes["a"].content_path(in_store).unlink()
    assert cluster.get("a", "other") == contents["small"], "b has read it from the object store"
    cluster.catalogue.change(file_copies, sa.true(), verified_at=seconds_from_now(-4000))
    proxy.refuse(FOR_EVER, refusal, only=first_tries(4))
    assert ("b", "verify-shared", {"verified": 3, "bad": 0}) in cluster.keep()
    for key in (*contents, "other"):
        assert ask_node(cluster.nodes["a"], "DELETE", f"/files/films/{key}").status_code == 204
    assert "remove-shared" in {name for _, name, _ in cluster.keep()}
    assert len(proxy.refused) > 8
    proxy.pass_all()
    assert names_of(moto) == []


@pytest.mark.usefixtures("impatient")
def test_an_object_store_that_refuses_for_ever_is_there_with_a_problem_and_all_its_copies_count(
    build: Build, moto: ObjectStoreServer, proxy: ThrottlingProxy, peerd: Peerd, tmp_path: Path
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
    url = cluster.catalogue.store.url.render_as_string(hide_password=False)
    (tmp_path / "peerd.toml").write_text(f'[database]\nurl = "{url}"\n')
    assert REFUSED in " ".join(peerd("files", "disks", "list").out.split())
    assert cluster.get("a", "f") == content, "it is read from the folder of b"
    later = cluster.put("b", "later", content)
    cluster.keep()
    assert cluster.store_disk not in cluster.catalogue.copies(later)
    proxy.pass_all()
    cluster.keep()
    assert disk_row(cluster).problem is None
    assert states(cluster) == {"stored"}
    assert names_of(moto) == [object_name(ContentId(one)) for one in (file_id, planned, later)]


@pytest.mark.usefixtures("impatient")
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
    assert count_of_tasks(cluster, "verify-shared") == 0, "no copy is suspected"
    assert states(cluster) == {"stored"}
    proxy.pass_all()
    cluster.keep()
    assert len(cluster.nodes["a"].contents()) == len(contents)


@pytest.mark.usefixtures("impatient")
def test_what_was_verified_before_the_object_store_refused_is_verified(
    build: Build, moto: ObjectStoreServer, proxy: ThrottlingProxy
) -> None:
    cluster = build(moto.options(endpoint=proxy.url), stores="a")
    cluster.want(copies=1)
    ids = [cluster.put("a", f"f{number}", os.urandom(1_000)) for number in range(3)]
    cluster.catalogue.change(file_copies, sa.true(), verified_at=seconds_from_now(-4000))
    last = object_name(ContentId(max(ids)))
    proxy.refuse(only=lambda request: request.target.endswith(last))
    row = {"name": "verify-shared", "node_id": None, "id": 0, "body": body_of(cluster.store_disk, sorted(ids))}
    assert REFUSED in str(cluster._run(row)[2])
    young = sa.select(sa.func.count()).where(file_copies.c.verified_at > seconds_from_now(-1000))
    assert cluster.catalogue.store.read(lambda connection: connection.execute(young).scalar_one()) == 2
    assert states(cluster) == {"stored"}
