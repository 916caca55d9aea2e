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
from peerd.storage import put_groups
from peerd.storage.auditing import FileAuditor, state_of
from peerd.storage.checking import NewFileToCheck, read_disk_view
from peerd.storage.placement.brake import DiskView
from peerd.storage.put_groups import EnteredPut, PutGroups
from peerd.store.audit import NewAuditEntry
from peerd.store.files.buckets import Bucket, Usage, bucket_usage
from peerd.store.files.publishing import FilePut, PublishedPut, publish_many
from peerd.store.files.versions import UNCONDITIONAL, Condition, NewFile
from peerd.testing import eventually
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
    refusals: dict[str, Any] = {"there": FileConditionFailed, "large": QuotaExceeded, "a" * 2000: InvalidFile}
    refusals["called with it"] = LookupError

    def put(key: str) -> StoredFile:
        condition = Condition(is_absent=True) if key == "there" else UNCONDITIONAL
        new = catalogue.new(key, disk, 10_000 if key == "large" else 10)
        auditor = FileAuditor(actor=Actor(name=f"putter of {key}", kind=ActorKind.PYTHON))

        def entry(_: StoredFile | None, published: StoredFile) -> NewAuditEntry:
            return auditor.entry("files.put", f"films/{key}", None, state_of(published))

        also = refuse if key == "called with it" else None
        return groups.publish(entered(bucket, new, condition, entry=entry, also=also))

    def refuse(_: Connection) -> None:
        raise LookupError

    with ThreadPoolExecutor(PUTS + 5) as threads:
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
    assert catalogue.find(bucket, "called with it") is None
    assert groups.groups == [1, PUTS]
    assert catalogue.store.read(bucket_usage, bucket.id) == Usage(PUTS + 2, 10 * (PUTS + 2))
    with Client(catalogue.store) as client:
        entries = {one.target: one.actor for one in client.audit.page(limit=100).items}
    assert entries == {f"films/{key}": f"putter of {key}" for key in ("first", *others)}


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
    bucket, disk, groups = catalogue.bucket(), catalogue.disk("a"), CountedGroups(catalogue)
    groups.goes_on.set()
    sizes = {"a": 10, "bad": -(2**70), "c": 10}  # no database has such a number
    with ThreadPoolExecutor(len(sizes)) as threads:
        with groups._turn:
            puts = {
                key: threads.submit(groups.publish, entered(bucket, catalogue.new(key, disk, size)))
                for key, size in sizes.items()
            }
            eventually(lambda: groups.waiting == len(sizes))
        with pytest.raises((SQLAlchemyError, OverflowError)):
            puts.pop("bad").result()
        assert {key: future.result().key for key, future in puts.items()} == {"a": "a", "c": "c"}
    assert catalogue.find(bucket, "bad") is None
    assert groups.groups == [1, 1]


def test_puts_beyond_the_most_of_a_group_are_in_the_next_ones(
    catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 4
    monkeypatch.setattr(put_groups, "MAX_PUTS", most)
    bucket, disk, groups = catalogue.bucket(), catalogue.disk("a"), CountedGroups(catalogue)
    groups.goes_on.set()
    keys = [f"key-{number}" for number in range(2 * most + 1)]
    with ThreadPoolExecutor(len(keys)) as threads:
        with groups._turn:
            puts = [threads.submit(groups.publish, entered(bucket, catalogue.new(key, disk))) for key in keys]
            eventually(lambda: groups.waiting == len(keys))
        assert [put.result().key for put in puts] == keys
    assert groups.groups == [most, most, 1]
    assert not groups.waiting


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
