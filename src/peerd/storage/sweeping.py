"""What is on a disk and belongs to nothing: contents that the catalogue does not know, and parts that stay parts.

A process that is killed between the publication of a content and the transaction that enters it leaves such a content.
It is moved to quarantine when it is a day old; what has been in quarantine for a month is removed. If a large part of a
disk is unknown, the catalogue is rather the wrong one (restored from an old backup, say), and nothing is moved.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import msgspec

from peerd.domain.errors import PeerdError
from peerd.storage.disk.content_id import ContentId
from peerd.storage.disk.errors import ContentMissing
from peerd.storage.each import do_each
from peerd.storage.local_disks import LocalDisk
from peerd.store.connection.database import Database
from peerd.store.files.copies import known_on_disk

GRACE: Final = 86_400.0
"""Seconds after which an unknown content is moved to quarantine."""
PART_GRACE: Final = 7 * 86_400.0
"""Seconds without a write after which a part is removed; of an upload to an object store, since its begin."""
QUARANTINE_GRACE: Final = 30 * 86_400.0
"""Seconds after which what is in quarantine is removed."""
MAX_UNKNOWN_SHARE: Final = 0.1
ALWAYS_MOVED: Final = 100
"""So many unknown contents are moved, also if they are a large share."""
BATCH: Final = 1000


class TooManyUnknown(PeerdError):
    """So many contents of a disk are unknown that nothing was moved."""

    def __init__(self, disk: int, unknown: int, contents: int) -> None:
        self.disk = disk
        self.unknown = unknown
        self.contents = contents
        super().__init__(
            f"the catalogue does not know {unknown} of the {contents} contents of disk {disk}, so nothing was moved: "
            "is this the right database, or was it restored from an old backup?"
        )


class Swept(msgspec.Struct, frozen=True):
    """How many contents, parts and entries of quarantine were moved or removed."""

    contents: int
    parts: int
    quarantined: int


def sweep(database: Database, disk: LocalDisk, stop: threading.Event, now: Callable[[], float] = time.time) -> Swept:
    """Move unknown contents of a disk to quarantine, and remove what has been useless for long.

    Args:
        database: with the catalogue.
        disk: of this node.
        stop: set to end it early.
        now: UNIX time, in seconds.

    Raises:
        TooManyUnknown: a large part of the disk is unknown.
        DiskError: the disk could not be read or written.
    """
    count, unknown = 0, list[ContentId]()
    for batch in disk.opened.walk(batch=BATCH):
        count += len(batch)
        old = [one.content for one in batch if one.content.made_at < now() - GRACE]
        known = database.read(known_on_disk, disk.number, [content.number for content in old]) if old else set()
        unknown += [content for content in old if content.number not in known]
        if stop.is_set():
            return Swept(0, 0, 0)
    if len(unknown) > max(ALWAYS_MOVED, count * MAX_UNKNOWN_SHARE):
        raise TooManyUnknown(disk.number, len(unknown), count)

    def move(content: ContentId) -> None:
        with contextlib.suppress(ContentMissing):
            disk.opened.quarantine(content, "unknown", now())

    parts, quarantined = 0, list[str]()

    def remove_parts() -> None:
        nonlocal parts
        parts = disk.opened.remove_old_parts(now() - PART_GRACE)

    def empty_quarantine() -> None:
        quarantined[:] = _old_in_quarantine(disk, now() - QUARANTINE_GRACE)
        do_each(quarantined, disk.opened.remove_from_quarantine)

    steps: list[Callable[[], None]] = [partial(do_each, unknown, move), remove_parts, empty_quarantine]
    do_each(steps, lambda step: step())
    return Swept(len(unknown), parts, len(quarantined))


def _old_in_quarantine(disk: LocalDisk, before: float) -> Iterator[str]:
    for name in disk.opened.quarantined():
        second = name.rpartition(".")[2]
        if second.isascii() and second.isdigit() and int(second) < before:
            yield name
