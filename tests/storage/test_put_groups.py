"""Puts that wait at the same time share a transaction, and succeed or fail each for itself, on every database."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from peerd import Client
from peerd.domain.access import Actor, ActorKind
from peerd.domain.file_errors import FileConditionFailed
from peerd.domain.files import StoredFile
from peerd.storage.auditing import FileAuditor
from peerd.storage.checking import read_disk_view
from peerd.storage.node import StorageNode
from peerd.storage.placement.brake import DiskView
from peerd.storage.put_groups import PutGroups
from peerd.storage.receiving import Received, Receiving
from peerd.store.files.versions import UNCONDITIONAL, Condition
from peerd.testing import eventually
from tests.storage.nodes import SECRET, StorageCluster
from tests.store.file_steps import Catalogue

PUTS = 12


class CountedGroups(PutGroups):
    """Groups of a catalogue; the first one waits until the test has seen that others wait."""

    def __init__(self, catalogue: Catalogue) -> None:
        super().__init__(catalogue.store, lambda: catalogue.store.read(read_disk_view), self._count)
        self.groups: list[int] = []
        self.goes_on = threading.Event()

    def _count(self, connection: Connection, file_ids: Any, view: DiskView) -> None:
        assert self.goes_on.wait(60)
        self.groups.append(len(file_ids))

    @property
    def waiting(self) -> int:
        return len(self._waiting)


def test_puts_that_wait_share_a_transaction_and_fail_alone(catalogue: Catalogue) -> None:
    bucket, disk = catalogue.bucket(), catalogue.disk("a")
    catalogue.put(bucket, "there", disk)
    groups = CountedGroups(catalogue)
    called: list[str] = []

    def put(key: str) -> StoredFile:
        condition = Condition(is_absent=True) if key == "there" else UNCONDITIONAL
        return groups.publish(bucket, catalogue.new(key, disk), condition, lambda *_: called.append(key))

    with ThreadPoolExecutor(PUTS + 1) as threads:
        first = threads.submit(put, "first")
        eventually(lambda: not groups.waiting and groups._turn.locked())
        keys = [*(f"key-{number}" for number in range(PUTS - 1)), "there"]
        others = {key: threads.submit(put, key) for key in keys}
        eventually(lambda: groups.waiting == PUTS)
        groups.goes_on.set()
        assert first.result().key == "first"
        with pytest.raises(FileConditionFailed):
            others.pop("there").result()
        for key, future in others.items():
            assert (future.result().key, future.result().version) == (key, 1)
            assert catalogue.find(bucket, key) == future.result()
    assert groups.groups == [1, PUTS - 1]
    assert sorted(called) == sorted(["first", *others])


def test_an_error_of_what_is_called_with_a_put_leaves_nothing_of_it(catalogue: Catalogue) -> None:
    bucket, disk = catalogue.bucket(), catalogue.disk("a")
    groups = CountedGroups(catalogue)
    groups.goes_on.set()

    def refuse(*_: object) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        groups.publish(bucket, catalogue.new("f", disk), UNCONDITIONAL, refuse)
    assert catalogue.find(bucket, "f") is None
    assert groups.groups == [0]


def test_puts_of_one_key_at_the_same_time_are_versions_in_any_order(catalogue: Catalogue) -> None:
    bucket, disk = catalogue.bucket(), catalogue.disk("a")
    nodes = [CountedGroups(catalogue), CountedGroups(catalogue)]
    for groups in nodes:
        groups.goes_on.set()

    def put(number: int) -> int:
        return nodes[number % 2].publish(bucket, catalogue.new("same", disk), UNCONDITIONAL).version

    with ThreadPoolExecutor(PUTS) as threads:
        assert sorted(threads.map(put, range(PUTS))) == list(range(1, PUTS + 1))


def test_a_statement_that_fails_in_one_put_fails_no_other_of_its_group(catalogue: Catalogue) -> None:
    bucket, disk = catalogue.bucket(), catalogue.disk("a")
    groups = CountedGroups(catalogue)

    def fail(connection: Connection, *_: object) -> None:
        connection.exec_driver_sql("SELECT 1 FROM no_such_table")

    def put(key: str) -> StoredFile:
        return groups.publish(bucket, catalogue.new(key, disk), UNCONDITIONAL, fail if key == "bad" else None)

    keys = ["a", "bad", "c"]
    with ThreadPoolExecutor(len(keys)) as threads:
        with groups._turn:
            puts = {key: threads.submit(put, key) for key in keys}
            eventually(lambda: groups.waiting == len(keys))
            groups.goes_on.set()
        with pytest.raises(SQLAlchemyError, match="no_such_table"):
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
    entered: list[tuple[StoredFile | None, StoredFile]] = []

    def enter(_: Connection, replaced: StoredFile | None, published: StoredFile) -> None:
        entered.append((replaced, published))

    first, second = (groups.publish(bucket, new, UNCONDITIONAL, enter) for _ in range(2))
    assert first == second == catalogue.find(bucket, "f")
    assert [(None if replaced is None else replaced.id, published) for replaced, published in entered] == [
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
