"""Puts that wait at the same time share a transaction, and succeed or fail each for itself, on every database."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy.engine import Connection

from peerd.domain.file_errors import FileConditionFailed
from peerd.domain.files import StoredFile
from peerd.storage.checking import read_disk_view
from peerd.storage.placement.brake import DiskView
from peerd.storage.put_groups import PutGroups
from peerd.store.files.versions import UNCONDITIONAL, Condition
from peerd.testing import eventually
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
        return groups.publish(bucket, catalogue.new(key, disk), condition, lambda _: called.append(key))

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

    def refuse(_: Connection) -> None:
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
