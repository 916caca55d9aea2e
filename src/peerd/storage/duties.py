"""The tasks of the queue `storage`: copies are made, removed and verified on the node that has the disk.

Each task can run again, twice at once, or on a disk that has changed meanwhile: it looks at the catalogue first, and
what it writes there names the state that it changes.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any, Final

from sqlalchemy.engine import Connection

from peerd.domain.errors import PeerdError
from peerd.domain.files import CopyState, DiskState, FileState
from peerd.domain.outcome import Snooze
from peerd.domain.units import format_size
from peerd.storage.disk.content_id import ContentId
from peerd.storage.disk.digest import ContentReading
from peerd.storage.disk.errors import ContentMismatch, ContentMissing, DiskError, HashingStopped, PartInUse
from peerd.storage.each import do_each
from peerd.storage.local_disks import LocalDisk
from peerd.storage.node import StorageNode, content_ids, digest_in_catalogue
from peerd.storage.sweeping import sweep
from peerd.storage.transfer.errors import NoSourceLeft, SourceFailed
from peerd.storage.transfer.pull import Pulled, TransferControl, Wanted, group_by_source, pull_content, pull_many
from peerd.store.files.checks import MOST_ENDANGERED, request_checks
from peerd.store.files.copies import (
    Content,
    Source,
    copies_bad,
    copies_in_state,
    copies_removed,
    copies_restored,
    copies_stored,
    copies_verified,
    find_contents,
    find_sources,
)
from peerd.store.files.disks import read_disks

SMALL: Final = 1024 * 1024
"""Bytes up to which contents are pulled many at once."""
LOCKED: Final = 100
"""Contents that are removed together, each with a descriptor."""
SOURCES_AWAY: Final = 60.0
"""Seconds until contents whose sources are all away are tried again, which is no attempt."""
MANY: Final = 250
"""Contents that are pulled and published together."""


class DiskNotHere(PeerdError):
    """A task is for a disk that this node does not have, or cannot use now."""

    def __init__(self, number: int, node: str) -> None:
        self.number = number
        self.node = node
        super().__init__(f"disk {number} is not usable on node {node}: peerd files disks list")


class Duties:
    """What the tasks of a node do; thread-safe.

    Args:
        node: the storage of the node.
    """

    def __init__(self, node: StorageNode) -> None:
        self._node = node

    def copy(self, disk: int, files: Sequence[str], stop: threading.Event, progress: Any) -> dict[str, int]:
        """Pull the contents that are still planned onto a disk."""
        local = self._disk(disk)
        if local is None:
            return {"copied": 0, "bytes": 0}
        ids = content_ids(files)
        contents, sources = self._wanted(local.number, ids)
        total = sum(content.size for content in contents.values()) or 1
        done = 0
        result = Pulled()
        control = TransferControl(bytes_per_second=self._node.options.rate, stop=stop)
        small = [content for content in contents.values() if content.size <= SMALL]
        for group in _groups(small):
            self._pull_small(local, group, sources, control, result)
            done += sum(content.size for content in group)
            self._count_copied(local, group, result)
            progress(done / total, f"{len(result.stored)} of {len(contents)} contents")
        ended = {content.number for content in result.stored}
        # Where the only source cannot read its disk now, the next attempt may find that it can.
        ended |= {content.number for content in result.unavailable if len(_urls(sources[content.number])) == 1}
        for content in contents.values():
            if content.id in ended:
                continue
            watched = control.but(progress=partial(_report_bytes, progress, done, content.size, total))
            self._pull_one(local, content, sources[content.id], watched, result)
            self._count_copied(local, [content], result)
            done += content.size
        self._report_bad(sources, result)
        if result.failed:
            online = self._node.view(fresh=True).is_online
            of_failed = [sources[content.number] for content in result.failed]
            if all(found and not any(online(source.disk_id) for source in found) for found in of_failed):
                raise Snooze(SOURCES_AWAY, "the disks that have the contents are away")
            raise NoSourceLeft(f"({len(result.failed)} of {len(contents)})", sorted(set(result.failed.values()))[:5])
        return {"copied": len(result.stored), "bytes": done}

    def remove(self, disk: int, files: Sequence[str]) -> dict[str, int]:
        """Remove the contents whose copies are to be removed."""
        local = self._disk(disk)
        if local is None:
            return {"removed": 0}
        ids = [content.number for content in content_ids(files)]
        groups = [ids[first : first + LOCKED] for first in range(0, len(ids), LOCKED)]
        removed: set[int] = set()

        def write(connection: Connection) -> set[int]:
            copies_removed(connection, local.number, sorted(removed))
            return removed

        try:
            do_each(groups, lambda group: self._remove_contents(local, group, {CopyState.REMOVING}, removed))
        finally:
            self._write_and_check(write)
            self._node.ring()
        return {"removed": len(removed)}

    def verify(self, disk: int, files: Sequence[str], stop: threading.Event, progress: Any) -> dict[str, int]:
        """Read the contents of copies and compare them with the catalogue.

        Those of stored copies that are bad go to quarantine; bad copies that are whole, also there, count again.
        """
        local = self._disk(disk)
        if local is None:
            return {"verified": 0, "bad": 0}
        ids = [content.number for content in content_ids(files)]
        stored = self._node.database.read(copies_in_state, local.number, ids, CopyState.STORED)
        were_bad = self._node.database.read(copies_in_state, local.number, ids, CopyState.BAD)
        contents = self._node.database.read(find_contents, sorted(stored | were_bad))
        good: list[int] = []
        bad: list[int] = []

        def read(content: Content) -> None:
            is_whole = self._is_whole(local, content, stop) or (
                content.id in were_bad and self._is_restored(local, content, stop)
            )
            (good if is_whole else bad).append(content.id)
            self._node.metrics.count("peerd_storage_verified_bytes_total", str(disk), by=content.size)
            number = len(good) + len(bad)
            progress(number / len(contents), f"{number} of {len(contents)} contents")

        try:
            do_each(contents.values(), read)
        finally:  # also of those that were read before the disk could be read no more
            self._enter_verified(local, good, bad, were_bad)
        return {"verified": len(good), "bad": len(bad)}

    def _enter_verified(self, local: LocalDisk, good: list[int], bad: list[int], were_bad: Collection[int]) -> None:
        restored = set(were_bad) & set(good)
        self._write_and_check(lambda connection: self._write_verified(connection, local.number, good, bad, restored))
        if new := sorted(set(bad) - set(were_bad)):
            self._node.report_bad_copies(local, new, "verification")
        self._node.ring()

    def sweep(self, disk: int, stop: threading.Event) -> dict[str, int]:
        """Move unknown contents of a disk to quarantine, and remove what has been useless for long."""
        local = self._disk(disk)
        if local is None:
            return {"contents": 0, "parts": 0, "quarantined": 0}
        swept = sweep(self._node.database, local, stop)
        return {"contents": swept.contents, "parts": swept.parts, "quarantined": swept.quarantined}

    def _disk(self, number: int) -> LocalDisk | None:
        """A disk of this node; the folders are examined again if it is not known. None: the disk is lost for ever.

        Raises:
            DiskNotHere: it is not lost, and cannot be used now.
        """
        found = self._node.disks.find(number)
        if found is None:
            self._node.disks.refresh()
            found = self._node.disks.find(number)
        if found is None and self._is_in_use(number):
            raise DiskNotHere(number, self._node.name)
        return found

    def _is_in_use(self, number: int) -> bool:
        """Whether the catalogue has a disk, and not as a lost one."""
        return any(
            disk.id == number and disk.state is not DiskState.LOST
            for disk in self._node.database.read(read_disks, counted=False).disks
        )

    def _wanted(self, disk: int, ids: Sequence[ContentId]) -> tuple[dict[int, Content], dict[int, list[Source]]]:
        """The contents whose copies are still planned, and where they can be read."""

        def find(connection: Connection) -> tuple[dict[int, Content], dict[int, list[Source]]]:
            planned = sorted(copies_in_state(connection, disk, [one.number for one in ids], CopyState.PLANNED))
            contents = find_contents(connection, planned)
            kept = {number: one for number, one in contents.items() if one.state is not FileState.DELETED}
            return kept, find_sources(connection, list(kept))

        return self._node.database.read(find)

    def _pull_small(
        self,
        local: LocalDisk,
        contents: Sequence[Content],
        sources: dict[int, list[Source]],
        control: TransferControl,
        result: Pulled,
    ) -> None:
        """Pull small contents from their preferred sources; those that fail are pulled one by one afterwards."""
        wanted = [Wanted(ContentId(content.id), digest_in_catalogue(content)) for content in contents]
        urls = {one.id: _urls(sources[one.id.number]) for one in wanted}
        for url, group in group_by_source(wanted, urls).items():
            with contextlib.suppress(SourceFailed), self._disk_errors(local):
                pulled = pull_many(self._node.http, local.opened, group, url, control)
                result.bad += pulled.bad
                for content in pulled.unavailable:
                    result.unavailable.add(content)
                    result.failed[content] = pulled.failed[content]
                self._enter(local, pulled.stored, result)

    def _pull_one(
        self, local: LocalDisk, content: Content, sources: Sequence[Source], control: TransferControl, result: Pulled
    ) -> None:
        wanted = Wanted(ContentId(content.id), digest_in_catalogue(content))
        try:
            with self._disk_errors(local):
                pulled = pull_content(self._node.http, local.opened, wanted, _urls(sources), control)
        except (NoSourceLeft, PartInUse) as error:
            result.failed[wanted.id] = "; ".join(getattr(error, "problems", ())) or str(error)
            return
        result.bad += pulled.bad
        self._enter(local, pulled.stored, result)

    def _enter(self, local: LocalDisk, stored: Sequence[ContentId], result: Pulled) -> None:
        """Enter copies that are durable; contents that are not planned any more are removed again."""
        ids = sorted(content.number for content in stored)

        def write(connection: Connection) -> set[int]:
            return copies_stored(connection, local.number, ids)

        entered = self._write_and_check(write)
        self._node.ring()
        others = sorted(set(ids) - entered)
        entered |= (
            self._node.database.read(copies_in_state, local.number, others, CopyState.STORED) if others else set()
        )
        if unwanted := sorted(set(ids) - entered):
            self._remove_contents(local, unwanted, {None, CopyState.REMOVING, CopyState.BAD}, set())
        result.stored += [content for content in stored if content.number in entered]

    def _remove_contents(
        self, local: LocalDisk, ids: Sequence[int], states: Collection[CopyState | None], removed: set[int]
    ) -> None:
        """Remove contents whose copies are in one of these states, None: have no row; their ids are added to removed.

        The states are read when no copy of them can be made any more: a process that stood still for long would else
        remove a copy that has been made anew meanwhile. What is being copied in this moment is left.
        """

        def remove(number: int) -> None:
            with contextlib.suppress(ContentMissing):
                local.opened.remove(ContentId(number))
            removed.add(number)

        with contextlib.ExitStack() as locked:
            free: list[int] = []
            for number in sorted(ids):
                with contextlib.suppress(PartInUse):
                    locked.enter_context(local.opened.without_writer(ContentId(number)))
                    free.append(number)
            with_row = self._node.database.read(copies_in_state, local.number, free, *CopyState)
            named = [state for state in states if state is not None]
            found = self._node.database.read(copies_in_state, local.number, free, *named)
            found |= set(free) - with_row if None in states else set()
            do_each(sorted(found), remove)

    def _count_copied(self, local: LocalDisk, contents: Sequence[Content], result: Pulled) -> None:
        """Count those of the contents that were stored."""
        stored = {content.number for content in result.stored}
        sizes = [content.size for content in contents if content.id in stored]
        if sizes:
            self._node.metrics.count("peerd_storage_copies_made_total", str(local.number), by=len(sizes))
            self._node.metrics.count("peerd_storage_copied_bytes_total", str(local.number), by=sum(sizes))

    def _write_and_check(self, write: Callable[[Connection], set[int]]) -> set[int]:
        """Write what was done, and decide at once what the files that ``write`` returns need now; return them.

        It is decided by disks that are read after all that has asked for it. Where a decision fails, what was done is
        written nevertheless, and the checks of the files are left to the manager.
        """

        def write_and_check(connection: Connection) -> set[int]:
            changed = write(connection)
            self._node.check(connection, sorted(changed), self._node.view(fresh=True))
            return changed

        def write_only(connection: Connection) -> set[int]:
            changed = write(connection)
            request_checks(connection, dict.fromkeys(changed, MOST_ENDANGERED))
            return changed

        try:
            return self._node.database.run(write_and_check)
        except PeerdError:
            raise
        except Exception:  # noqa: BLE001 - the manager reports it
            return self._node.database.run(write_only)

    def _report_bad(self, sources: dict[int, list[Source]], result: Pulled) -> None:
        for url, content in result.bad:
            for source in sources.get(content.number, []):
                if source.url == url:
                    self._node.request_verification(source.disk_id, content.number)

    def _is_whole(self, local: LocalDisk, content: Content, stop: threading.Event) -> bool:
        content_id = ContentId(content.id)
        reading = ContentReading(bytes_per_second=self._node.options.rate, stop=stop, from_disk=True)
        try:
            opened = local.opened.open(content_id)
        except ContentMissing:
            local.opened.check()  # of a disk that is not there, such as an empty mount point, nothing is known
            return False
        with opened:
            try:
                opened.verify(digest_in_catalogue(content), reading)
            except ContentMismatch:
                with contextlib.suppress(ContentMissing):
                    local.opened.quarantine(content_id, "mismatch", time.time(), found=opened)
                return False
        return True

    def _is_restored(self, local: LocalDisk, content: Content, stop: threading.Event) -> bool:
        """Whether a content that was whole in quarantine is back."""
        reading = ContentReading(bytes_per_second=self._node.options.rate, stop=stop, from_disk=True)
        return local.opened.restore(ContentId(content.id), digest_in_catalogue(content), reading)

    def _write_verified(
        self, connection: Connection, disk: int, good: list[int], bad: list[int], restored: Collection[int]
    ) -> set[int]:
        copies_restored(connection, disk, sorted(restored))
        copies_verified(connection, disk, good)
        copies_bad(connection, disk, bad)
        row = next((one for one in self._node.disks.usable() if one.number == disk), None)
        if row is not None and row.row.verified_since is not None:
            request_checks(connection, dict.fromkeys(good, 1))  # copies that count again may be surplus now
        # What waits for it can be removed elsewhere now. Of what was bad, other copies may be read at the same time: a
        # decision now would plan one more copy, although none is missing when they are done.
        return set(good) - set(restored)

    @contextlib.contextmanager
    def _disk_errors(self, local: LocalDisk) -> Iterator[None]:
        """A disk on which a write has failed gets no new contents for a while."""
        try:
            yield
        except (ContentMismatch, ContentMissing, HashingStopped, PartInUse):
            raise
        except DiskError as error:
            self._node.disks.failed(local.number, error)
            raise


def _report_bytes(progress: Any, begun: int, size: int, total: int, position: int) -> None:
    progress(min(1.0, (begun + position) / total), f"{format_size(position)} of {format_size(size)}")


def _urls(sources: Sequence[Source]) -> list[str]:
    return [source.url for source in sources if source.url is not None]


def _groups(contents: Sequence[Content]) -> Iterator[Sequence[Content]]:
    for first in range(0, len(contents), MANY):
        yield contents[first : first + MANY]
