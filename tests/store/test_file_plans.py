"""What is done with files costs the same however many there are: each statement goes by an index."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any, Final

import pytest
import sqlalchemy as sa

from peerd.domain.files import CopyState, DiskState
from peerd.storage.checking import check_files, read_disk_view
from peerd.store.connection.database import Database
from peerd.store.files import checks, copies, disks, listing, risks, uploads, versions, walks
from peerd.store.files.buckets import Bucket
from peerd.store.schema.tables import file_checks, file_copies, file_upload_parts, file_uploads, files
from peerd.store.schema.types import seconds_from_now
from tests.store.file_steps import HASH, Catalogue
from tests.store.plans import analyze, problems_of_plans

pytestmark = [pytest.mark.slow, pytest.mark.every_database]

FILES: Final = 20_000
BATCH: Final = 20
"""A thousandth of the files, as the batches of the product are of a million."""
LARGE: Final = ("files", "file_copies", "file_checks", "file_chunks", "file_uploads", "file_upload_parts")
RISKS: Final = ((1, "at-risk"), (2, "at-risk"), (8, "lost"), (1, "whole"), (9, "deleted"), (2, None))
Operation = Callable[["Filled"], object]


class Filled:
    """A catalogue with many files, each with two copies; all wait for a check, and every tenth expires."""

    def __init__(self, store: Database) -> None:
        self.store = store
        self.catalogue = Catalogue(store)
        self.bucket: Bucket = self.catalogue.bucket()
        self.other = self.catalogue.bucket("archive")
        self.disks = [self.catalogue.disk(name) for name in ("a", "b", "c")]
        ids = range(1_000_000, 1_000_000 + FILES)
        self.middle = ids[FILES // 2]
        self._insert(files, [self._file(number) for number in ids])
        self._insert(file_copies, [self._copy(number, place) for number in ids for place in (0, 1)])
        self._insert(file_checks, [self._check(number) for number in ids])
        self._insert(file_uploads, [self._upload(number) for number in ids[::10]])
        self._insert(file_upload_parts, [self._part(number, part) for number in ids[::10] for part in (1, 2)])
        is_tenth = files.c.id % 10 == 0
        self.catalogue.change(files, is_tenth, expires_at=seconds_from_now(86_400.0))
        self.catalogue.change(file_checks, file_checks.c.file_id % 8 == 0, due_at=seconds_from_now(3600.0))
        analyze(store, *LARGE, "disks", "nodes", "file_buckets", "file_classes")
        first = store.read(risks.files_at_risk, None, None, BATCH, counted=False)
        self.first_risk = risks.parse_place(first.next_after or "")

    def _file(self, number: int) -> dict[str, Any]:
        fixed = {"state": "stored", "is_current": 1, "version": 1, "class_name": "default", "blake3": HASH, "size": 10}
        return {**fixed, "id": number, "bucket_id": self.bucket.id, "file_key": self.key(number)}

    def _copy(self, number: int, place: int) -> dict[str, Any]:
        state = CopyState.PLANNED if place and number % 20 == 0 else CopyState.STORED
        return {"file_id": number, "disk_id": self.disks[place], "size": 10, "state": state.value}

    def _check(self, number: int) -> dict[str, Any]:
        danger, health = RISKS[number % len(RISKS)]
        since = datetime.now(UTC) - timedelta(minutes=number % FILES / 100)
        return {"file_id": number, "danger": danger, "health": health, "created_at": since}

    def _upload(self, number: int) -> dict[str, Any]:
        place = {"bucket_id": self.bucket.id, "file_key": self.key(number), "disk_id": self.disks[0]}
        return {**place, "id": f"{number:032}", "class_name": "default"}

    def _part(self, number: int, part: int) -> dict[str, Any]:
        return {"upload_id": f"{number:032}", "number": part, "content_id": number, "size": 10, "etag": "0" * 32}

    def _insert(self, table: sa.Table, rows: list[dict[str, Any]]) -> None:
        self.store.run(lambda connection: connection.execute(sa.insert(table), rows).close())

    @staticmethod
    def key(number: int) -> str:
        return f"folder-{number % 7}/{number}.mov"

    def put(self, key: str) -> object:
        return self.catalogue.put(self.bucket, key, self.disks[0])

    def run(self, operation: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
        return self.store.run(operation, *arguments, **more)

    def check(self) -> None:
        view = self.store.read(read_disk_view)
        self.run(lambda connection: check_files(connection, checks.lock_due_checks(connection, BATCH), view, Random(1)))


OPERATIONS: Final[dict[str, Operation]] = {
    "a put": lambda it: it.put("new.mov"),
    "a put over another": lambda it: it.put(it.key(it.middle + 1)),
    "a file": lambda it: it.catalogue.find(it.bucket, it.key(it.middle)),
    "a deletion": lambda it: it.run(versions.delete_file, it.bucket, it.key(it.middle)),
    "a move": lambda it: it.run(
        versions.move_file, (it.bucket, it.key(it.middle + 3)), (it.other, it.key(it.middle + 3))
    ),
    "expired files": lambda it: it.run(versions.delete_expired, BATCH),
    "a list": lambda it: it.run(listing.list_files, it.bucket, prefix="folder-3/1", limit=BATCH),
    "folders": lambda it: it.run(listing.list_files, it.bucket, delimiter="/"),
    "checks that are due": lambda it: it.check(),
    "the disks": lambda it: it.run(disks.read_disks),
    "a walk over a disk": lambda it: (
        it.run(disks.set_disk_state, it.disks[2], DiskState.DRAIN),
        it.run(walks.walk_on, BATCH, [it.disks[1]]),
    ),
    "a verification": lambda it: it.run(walks.next_to_verify, it.disks[0], 86_400.0, BATCH),
    "sources": lambda it: it.run(copies.find_sources, [it.middle, it.middle + 1]),
    "copies that are stored": lambda it: it.run(copies.copies_stored, it.disks[1], [it.middle]),
    "copies that are verified": lambda it: it.run(copies.copies_verified, it.disks[1], [it.middle]),
    "copies of a file": lambda it: it.run(copies.list_copies, it.middle),
    "files of all buckets": lambda it: it.run(walks.walk_files, None, it.middle, BATCH),
    "uploads that are stale": lambda it: it.run(listing.stale_uploads, it.disks, 86_400.0, BATCH),
    "uploads that were aborted": lambda it: it.run(listing.aborted_uploads, it.disks, BATCH),
    "uploads of a key": lambda it: it.run(uploads.uploads_of_key, it.bucket, it.key(it.middle)),
    "contents that are known": lambda it: it.run(copies.known_on_disk, it.disks[0], [it.middle]),
    "counts of risks": lambda it: it.run(risks.count_risks, longer_than=900.0),
    "files that are nowhere else": lambda it: it.run(risks.count_only_on, it.disks[:2], it.disks[2:], BATCH),
    "copies that are bad": lambda it: it.run(copies.count_bad, it.disks[1]),
    "files at risk": lambda it: it.run(risks.files_at_risk, None, None, BATCH, counted=False),
    "lost files": lambda it: it.run(risks.files_at_risk, "lost", None, BATCH, counted=False),
    "further files at risk": lambda it: it.run(risks.files_at_risk, None, it.first_risk, BATCH, counted=False),
    "uploads of all buckets": lambda it: it.run(listing.list_unfinished, None, "", "", BATCH),
}


def test_every_statement_about_files_goes_by_an_index(store: Database) -> None:
    filled = Filled(store)
    problems = {
        name: found
        for name, operation in OPERATIONS.items()
        if (found := problems_of_plans(store, partial(operation, filled), *LARGE))
    }
    assert not problems, "\n\n".join(f"{name}: {found}" for name, [found, *_] in problems.items())
