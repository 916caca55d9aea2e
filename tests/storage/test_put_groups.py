"""Puts that wait at the same time share a transaction, and succeed or fail each for itself, on every database."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from peerd import Client
from peerd.domain.access import Actor, ActorKind
from peerd.domain.file_errors import FileConditionFailed, InvalidFile, QuotaExceeded
from peerd.domain.files import FileClass, StoredFile
from peerd.storage.auditing import FileAuditor, state_of
from peerd.storage.checking import NewFileToCheck, read_disk_view
from peerd.storage.node import StorageNode
from peerd.storage.placement.brake import DiskView
from peerd.storage.put_groups import EnteredPut, PutGroups
from peerd.storage.receiving import Received, Receiving
from peerd.store.access.audit import NewAuditEntry
from peerd.store.files.buckets import Bucket, Usage, bucket_usage
from peerd.store.files.publishing import FilePut, PublishedPut, publish_many
from peerd.store.files.versions import UNCONDITIONAL, Condition, NewFile
from peerd.testing import eventually
from tests.storage.nodes import SECRET, StorageCluster
from tests.store.file_steps import Catalogue

PUTS = 12


class CountedGroups(PutGroups):
    """Groups of a catalogue; the first one waits until the test has seen that others wait."""

    def __init__(self, catalogue: Catalogue) -> None:
        super().__init__(catalogue.store, lambda: catalogue.store.read(read_disk_view), self._refuse, self._count)
        self.groups: list[int] = []
        self.goes_on = threading.Event()

    def _refuse(self, *_: object) -> None:
        raise AssertionError("no put of this test is staged")

    def _count(self, _: Connection, new_files: Sequence[NewFileToCheck], __: DiskView) -> None:
        assert self.goes_on.wait(60)
        self.groups.append(len(new_files))

    @property
    def waiting(self) -> int:
        return len(self._waiting)


def entered(bucket: Bucket, new: NewFile, condition: Condition = UNCONDITIONAL, **more: Any) -> EnteredPut:
    return EnteredPut(put=FilePut(bucket, new, condition), file_class=FileClass(name="default"), **more)


def test_puts_that_wait_share_a_transaction_and_fail_alone(catalogue: Catalogue) -> None:
    bucket, disk = catalogue.bucket(quota=10_000), catalogue.disk("a")
    catalogue.put(bucket, "there", disk)
    groups = CountedGroups(catalogue)
    refusals = {"there": FileConditionFailed, "large": QuotaExceeded, "a" * 2000: InvalidFile}

    def put(key: str) -> StoredFile:
        condition = Condition(is_absent=True) if key == "there" else UNCONDITIONAL
        return groups.publish(entered(bucket, catalogue.new(key, disk, 10_000 if key == "large" else 10), condition))

    with ThreadPoolExecutor(PUTS + 4) as threads:
        first = threads.submit(put, "first")
        eventually(lambda: not groups.waiting and groups._turn.locked())
        keys = [*(f"key-{number}" for number in range(PUTS)), *refusals]
        others = {key: threads.submit(put, key) for key in keys}
        eventually(lambda: groups.waiting == len(keys))
        groups.goes_on.set()
        assert first.result().key == "first"
        for key, error in refusals.items():
            with pytest.raises(error):
                others.pop(key).result()
        for key, future in others.items():
            assert (future.result().key, future.result().version) == (key, 1)
            assert catalogue.find(bucket, key) == future.result()
    assert groups.groups == [1, PUTS]
    usage = catalogue.store.read(bucket_usage, bucket.id)
    assert usage == Usage(PUTS + 2, 10 * (PUTS + 2))


def test_a_key_that_is_put_twice_in_a_group_has_two_versions_more(catalogue: Catalogue) -> None:
    bucket, disk = catalogue.bucket(), catalogue.disk("a")
    catalogue.put(bucket, "f", disk, 5)
    news = [catalogue.new("f", disk, size) for size in (7, 11)]
    puts = [FilePut(bucket, new) for new in [news[0], catalogue.new("g", disk, 1), news[1]]]

    outcomes = catalogue.store.run(publish_many, puts)
    published = [one for one in outcomes if isinstance(one, PublishedPut)]
    assert [(one.current.key, one.current.version) for one in published] == [("f", 2), ("g", 1), ("f", 3)]
    assert [one.replaced and one.replaced.size for one in published] == [5, None, 7]
    assert catalogue.find(bucket, "f") == published[2].current
    assert catalogue.store.read(bucket_usage, bucket.id) == Usage(2, 12)


def test_an_error_of_what_is_called_with_a_put_leaves_nothing_of_it(catalogue: Catalogue) -> None:
    bucket, disk = catalogue.bucket(), catalogue.disk("a")
    groups = CountedGroups(catalogue)
    groups.goes_on.set()

    def refuse(_: Connection) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        groups.publish(entered(bucket, catalogue.new("f", disk), also=refuse))
    assert catalogue.find(bucket, "f") is None
    assert groups.groups == []


@pytest.mark.parametrize(
    ("condition", "versions"),
    [(UNCONDITIONAL, range(2, PUTS + 2)), (Condition(is_absent=True), [1]), (Condition(tag="first"), [2])],
    ids=["any", "new", "replacing"],
)
def test_puts_of_one_key_at_the_same_time_are_versions_in_any_order_and_one_of_those_with_a_condition_succeeds(
    catalogue: Catalogue, condition: Condition, versions: Sequence[int]
) -> None:
    bucket, disk = catalogue.bucket(), catalogue.disk("a")
    if not condition.is_absent:
        catalogue.put(bucket, "f", disk, etag="first")
    nodes = [CountedGroups(catalogue), CountedGroups(catalogue)]
    for groups in nodes:
        groups.goes_on.set()

    def put(number: int) -> int | None:
        try:
            new = catalogue.new("f", disk, etag=f"of {number}")
            return nodes[number % 2].publish(entered(bucket, new, condition)).version
        except FileConditionFailed:
            return None

    with ThreadPoolExecutor(PUTS) as threads:
        published = [version for version in threads.map(put, range(PUTS)) if version is not None]
    assert sorted(published) == list(versions)


def test_a_statement_that_fails_in_one_put_fails_no_other_of_its_group(catalogue: Catalogue) -> None:
    bucket, disk = catalogue.bucket(), catalogue.disk("a")
    groups = CountedGroups(catalogue)

    def put(key: str) -> StoredFile:
        size = -(2**70) if key == "bad" else 10  # no database has such a number
        return groups.publish(entered(bucket, catalogue.new(key, disk, size)))

    keys = ["a", "bad", "c"]
    with ThreadPoolExecutor(len(keys)) as threads:
        with groups._turn:
            puts = {key: threads.submit(put, key) for key in keys}
            eventually(lambda: groups.waiting == len(keys))
            groups.goes_on.set()
        with pytest.raises((SQLAlchemyError, OverflowError)):
            puts.pop("bad").result()
        assert {key: future.result().key for key, future in puts.items()} == {"a": "a", "c": "c"}
    assert catalogue.find(bucket, "bad") is None
    assert groups.groups == [1, 1]


def test_a_put_that_is_repeated_after_a_lost_reply_to_its_commit_is_entered_once(catalogue: Catalogue) -> None:
    bucket, disk = catalogue.bucket(), catalogue.disk("a")
    old = catalogue.put(bucket, "f", disk)
    groups = CountedGroups(catalogue)
    groups.goes_on.set()
    new = catalogue.new("f", disk)
    entries: list[tuple[StoredFile | None, StoredFile]] = []
    auditor = FileAuditor(actor=Actor(name="somebody", kind=ActorKind.PYTHON))

    def entry(replaced: StoredFile | None, published: StoredFile) -> NewAuditEntry:
        entries.append((replaced, published))
        return auditor.entry("files.put", "films/f", None, state_of(published))

    first, second = (groups.publish(entered(bucket, new, entry=entry)) for _ in range(2))
    assert first == second == catalogue.find(bucket, "f")
    assert [(None if replaced is None else replaced.id, published) for replaced, published in entries] == [
        (old.id, first)
    ]


def test_each_put_of_a_group_has_its_own_entry_in_the_audit_log(cluster: StorageCluster) -> None:
    cluster.catalogue.bucket()
    node = cluster.nodes["a"].node
    put_by(node, "key-0", "earlier")

    with ThreadPoolExecutor(PUTS + 1) as threads:
        with node.puts._turn:
            waiting = [threads.submit(put_by, node, f"key-{number}", f"actor-{number}") for number in range(PUTS)]
            refused = threads.submit(put_by, node, "key-0", "refused", Condition(tag="another"))
            eventually(lambda: len(node.puts._waiting) == PUTS + 1)
        put = {future.result().key: future.result() for future in waiting}
        with pytest.raises(FileConditionFailed):
            refused.result()
    with Client(cluster.catalogue.store, secret=SECRET) as client:
        entries = [one for one in client.audit.page(limit=100).items if one.operation == "files.put"]
    assert sorted((one.target, one.actor, one.after["blake3"]) for one in entries if one.actor != "earlier") == sorted(
        (f"films/{key}", key.replace("key", "actor"), file.blake3) for key, file in put.items()
    )
    assert {one.target: one.before["version"] for one in entries if one.before is not None} == {"films/key-0": 1}


def put_by(node: StorageNode, key: str, actor: str, condition: Condition = UNCONDITIONAL) -> StoredFile:
    auditor = FileAuditor(actor=Actor(name=actor, kind=ActorKind.PYTHON))
    with Receiving.begin(node, None) as receiving:
        receiving.write(f"{key} of {actor}".encode())
        return receiving.finish(Received(bucket="films", key=key, condition=condition, auditor=auditor))
