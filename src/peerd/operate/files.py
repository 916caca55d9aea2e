"""Files: what buckets have, how a file is kept, and moving, removing and checking files.

Contents are put and got by `peerd.operate.file_transfers`, from and to the nodes that have disks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

import msgspec
from sqlalchemy.engine import Connection

from peerd.domain.access import Right
from peerd.domain.errors import InvalidFilter
from peerd.domain.file_errors import FileMissing
from peerd.domain.files import Copy, CopyState, DiskState, StoredFile
from peerd.domain.quoting import quoted
from peerd.domain.ring import TasksAvailable
from peerd.operate import validation
from peerd.operate.file_keys import FileKeyOperations
from peerd.operate.file_names import key_text, parse_file_path
from peerd.operate.file_transfers import FileTransfers
from peerd.operate.file_uploads import FileUploadOperations
from peerd.operate.operations import Mode, Query, operation
from peerd.storage.checking import (
    LOW_PRIORITY,
    MAX_FILES_OF_TASK,
    PRIORITIES,
    QUEUE,
    VERIFY,
    check_files,
    read_disk_view,
    storage_task,
)
from peerd.storage.overview import StorageOverview, is_storage_used, read_storage_overview, read_storage_view
from peerd.storage.placement.brake import DiskView
from peerd.storage.placement.decision import Decision, FileHealth, decide
from peerd.store.audit import bucket_state, file_state
from peerd.store.enqueue import enqueue
from peerd.store.files import buckets, listing, walks
from peerd.store.files.buckets import StorageUsage, get_bucket
from peerd.store.files.checks import (
    DANGER_WITHOUT_COPY,
    lock_checks,
    read_copies,
    read_files_to_check,
    request_checks,
)
from peerd.store.files.copies import FileCopy, list_copies
from peerd.store.files.disks import read_disks
from peerd.store.files.listing import MAX_PAGE, FileList
from peerd.store.files.risks import NOT_DECIDED, FilesAtRisk, RiskPlace, files_at_risk, parse_place
from peerd.store.files.versions import delete_file, find_file, get_file, move_file

MOST_REMOVED: Final = 500
"""Files that one call removes, in one transaction."""
MOST_CHECKED: Final = 5_000
MOST_KEPT: Final = 500
UNREADABLE: Final = "unreadable"
LISTED: Final = (FileHealth.AT_RISK, FileHealth.UNREACHABLE, FileHealth.LOST, FileHealth.WHOLE)
HEALTHS: Final = (NOT_DECIDED, *(health.value for health in LISTED))


class FileStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The current version of a file, and how it is kept.

    Attributes:
        health: ``whole``, ``at-risk``, ``unreachable`` or ``lost``, by what the catalogue has now; ``unreadable``, if
            copies count, but all of them are on disks that are away.
        good: how many nodes have a copy that counts.
        wanted: how many copies its class wants.
        blocked: why nothing can be done about it now, or None.
    """

    file: StoredFile
    copies: list[FileCopy]
    health: str
    good: int
    wanted: int
    blocked: str | None = None


class FileKept(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a list, and how it is kept.

    Attributes:
        health: ``whole``, ``at-risk``, ``unreachable`` or ``lost``, by what the catalogue has now; ``unreadable``, if
            copies count, but all of them are on disks that are away.
        good: how many nodes have a copy that counts.
        wanted: how many copies its class wants.
    """

    file: StoredFile
    health: str
    good: int
    wanted: int


class FilesKept(msgspec.Struct, frozen=True):
    """A page of a list, see `FileList`, with how each file is kept."""

    files: list[FileKept]
    prefixes: list[str]
    next_after: str | None = None


class FilesRemoved(msgspec.Struct, frozen=True):
    """A batch of files that were removed, their bytes, and whether there may be more."""

    files: int
    bytes: int
    has_more: bool


class FilesChecked(msgspec.Struct, frozen=True):
    """A batch of files whose check was requested.

    Attributes:
        files: how many.
        verifications: how many of their copies are read and verified by tasks.
        next_after: what to give as ``after`` for the next batch; None: this was the last one.
    """

    files: int
    verifications: int
    next_after: str | None


class FileOperations(FileTransfers[Mode]):
    """``client.files``. A file is named by its bucket and its key, ``"films/2026/a.mov"``."""

    subject = "files"

    def __init__(self, mode: Mode) -> None:
        super().__init__(mode)
        self.keys: FileKeyOperations[Mode] = FileKeyOperations(mode)
        self.uploads: FileUploadOperations[Mode] = FileUploadOperations(mode)

    @operation(needs=Right.READ_FILES, in_queues=True)
    def list(
        self, bucket: str, prefix: str = "", *, after: str = "", delimiter: str = "", limit: int = MAX_PAGE
    ) -> Query[FileList]:
        """A page of the files of a bucket, in the order of their keys.

        Args:
            bucket: its name.
            prefix: what the keys begin with.
            after: ``next_after`` of the page before.
            delimiter: such as "/": what keys have up to it, after the prefix, is one entry of ``prefixes``.
            limit: files and prefixes at the most, 1 to 1,000.

        Raises:
            BucketNotFound: there is no such bucket.
        """
        texts = {"prefix": prefix, "after": after, "delimiter": delimiter}
        checked = {name: key_text(name, value) for name, value in texts.items()}
        most = validation.number("limit", limit, 1, MAX_PAGE)
        name = validation.text("bucket", bucket)
        self._require_files("files.list", name, checked["prefix"])
        return Query("read", _list_files, name, checked, most)

    @operation(needs=Right.READ_FILES, in_queues=True)
    def stat(self, path: str) -> Query[FileStatus]:
        """The current version of a file, its copies, and how it is kept.

        Raises:
            InvalidFile: this is no name of a file.
            BucketNotFound, FileMissing: there is no such bucket, or file.
        """
        bucket, key = parse_file_path(path)
        self._require_files("files.stat", bucket, key)
        return Query("read", _read_status, bucket, key)

    @operation(needs=Right.READ_FILES, in_queues=True)
    def kept(
        self, bucket: str, prefix: str = "", *, after: str = "", delimiter: str = "", limit: int = 100
    ) -> Query[FilesKept]:
        """A page of files as `list` has it, with how each file is kept.

        Args:
            bucket: its name.
            prefix: what the keys begin with.
            after: ``next_after`` of the page before.
            delimiter: such as "/": what keys have up to it, after the prefix, is one entry of ``prefixes``.
            limit: files and prefixes at the most, 1 to 500.

        Raises:
            BucketNotFound: there is no such bucket.
        """
        texts = {"prefix": prefix, "after": after, "delimiter": delimiter}
        checked = {name: key_text(name, value) for name, value in texts.items()}
        most = validation.number("limit", limit, 1, MOST_KEPT)
        name = validation.text("bucket", bucket)
        self._require_files("files.kept", name, checked["prefix"])
        return Query("read", _list_kept, name, checked, most)

    @operation
    def overview(self) -> Query[StorageOverview]:
        """How files are kept in the whole cluster: disks, files at risk, and whether nothing is repaired.

        It takes as long for a million files as for one: copies are counted by a manager now and then.
        """
        self._require_all_files("files.overview")
        return Query("read", read_storage_overview)

    @operation
    def are_used(self) -> Query[bool]:
        """Whether there is a disk or a bucket."""
        return Query("read", is_storage_used)

    @operation(needs=Right.WRITE_FILES, in_queues=True)
    def move(self, source: str, target: str) -> Query[StoredFile]:
        """Give a file another key, or another bucket; a file that the target has is replaced. Contents are not copied.

        Raises:
            InvalidFile: one of them is no name of a file.
            BucketNotFound, FileMissing: there is no such bucket, or file.
            QuotaExceeded: the other bucket has no room.
        """
        (bucket, key), new = parse_file_path(source), parse_file_path(target)
        self._require_files("files.move", bucket, key)
        self._require_files("files.move", *new)
        query = Query("run", _move_file, (bucket, key), new).acting_on("file", source, file_state, bucket, key)
        return query.then_ring(TasksAvailable((QUEUE,)))

    @operation(needs=Right.WRITE_FILES, in_queues=True)
    def remove(self, path: str) -> Query[StoredFile]:
        """Remove a file; its copies are removed by tasks.

        Returns:
            the version that was current.

        Raises:
            InvalidFile: this is no name of a file.
            BucketNotFound, FileMissing: there is no such bucket, or file.
        """
        bucket, key = parse_file_path(path)
        self._require_files("files.remove", bucket, key)
        query = Query("run", _remove_file, bucket, key).acting_on("file", path, file_state, bucket, key)
        return query.then_ring(TasksAvailable((QUEUE,)))

    @operation(needs=Right.WRITE_FILES, in_queues=True)
    def remove_below(self, bucket: str, prefix: str, *, limit: int = MOST_REMOVED) -> Query[FilesRemoved]:
        """Remove files whose keys begin with a prefix, in one transaction; call it again while there are more.

        Args:
            bucket: its name.
            prefix: of the keys; "" is all of the bucket.
            limit: files at the most, 1 to 500.

        Raises:
            BucketNotFound: there is no such bucket.
        """
        name, most = validation.text("bucket", bucket), validation.number("limit", limit, 1, MOST_REMOVED)
        begin = key_text("prefix", prefix)
        self._require_files("files.remove_below", name, begin)
        query = Query("run", _remove_below, name, begin, most)
        return query.acting_on("bucket", name, bucket_state, name).then_ring(TasksAvailable((QUEUE,)))

    @operation
    def usage(self) -> Query[StorageUsage]:
        """What the buckets have, and the disks; counting the copies of all disks takes longer the more there are."""
        return Query("read", buckets.read_usage)

    @operation
    def at_risk(
        self, health: str | None = None, *, after: str | None = None, limit: int = 100, counted: bool = True
    ) -> Query[FilesAtRisk]:
        """How many files are not settled, and a page of them, those with the fewest good copies first.

        Args:
            health: only files that are ``at-risk``, ``unreachable``, ``lost``, ``whole`` (with copies to remove), or
                ``unchecked``; by default of any but ``unchecked``.
            after: ``next_after`` of the page before.
            limit: files at the most, 1 to 1,000.
            counted: whether all are counted, which takes longer the more there are; else ``counts`` is empty.
        """
        if health is not None and health not in HEALTHS:
            raise InvalidFilter("health", f"{quoted(health)} is none of {', '.join(HEALTHS)}")
        self._require_all_files("files.at_risk")
        most = validation.number("limit", limit, 1, MAX_PAGE)
        return Query("read", files_at_risk, health, _place(after), most, counted=counted)

    @operation
    def verify(self, path: str) -> Query[FilesChecked]:
        """Have all copies of a file read and compared, also those that are bad: one that is whole counts again.

        A bad copy may be whole after all, where a file system was repaired, or a cable or memory was at fault. What is
        in quarantine is examined too, and brought back.

        Returns:
            how many copies are read.

        Raises:
            InvalidFile: this is no name of a file.
            BucketNotFound, FileMissing: there is no such bucket, or file.
        """
        bucket, key = parse_file_path(path)
        self._require_files("files.verify", bucket, key)
        query = Query("run", _verify_file, bucket, key).acting_on("file", path, file_state, bucket, key)
        return query.then_ring(TasksAvailable((QUEUE,)))

    @operation
    def fsck(
        self, bucket: str | None = None, *, verify: bool = False, after: str | None = None, limit: int = 1_000
    ) -> Query[FilesChecked]:
        """Request checks of a batch of files: what each needs is decided anew, and done by tasks.

        Args:
            bucket: only its files; by default those of all.
            verify: have their copies read and verified, too.
            after: ``next_after`` of the batch before.
            limit: files at the most, 1 to 5,000.

        Raises:
            BucketNotFound: there is no such bucket.
        """
        self._require_all_files("files.fsck")
        name, most = validation.text_or_none("bucket", bucket), validation.number("limit", limit, 1, MOST_CHECKED)
        start = validation.id_cursor(after, "files")
        query = Query("run", _request_checks, name, -1 if start is None else start, most, verify=verify)
        query.acting_on("bucket", "all" if name is None else name)
        return query.then_ring(TasksAvailable((QUEUE,)))


def _verify_file(connection: Connection, bucket: str, key: str) -> FilesChecked:
    file = get_file(connection, get_bucket(connection, bucket), key)
    copies = [row.copy for row in read_copies(connection, [file.id])[file.id]]
    on = [copy.disk_id for copy in copies if copy.state in {CopyState.STORED, CopyState.BAD}]
    request_checks(connection, {file.id: min(len(on), DANGER_WITHOUT_COPY - 1) or DANGER_WITHOUT_COPY})
    return FilesChecked(1, _request_verifications(connection, {file.id: on}, PRIORITIES[1]), None)


def _place(after: str | None) -> RiskPlace | None:
    """The place in a cursor."""
    text = validation.cursor(after)
    if text is None:
        return None
    try:
        return parse_place(text)
    except ValueError:
        raise InvalidFilter("after", "this is no cursor of a page of files; leave it out to begin anew") from None


def _list_files(connection: Connection, name: str, texts: Mapping[str, str], limit: int) -> FileList:
    return listing.list_files(connection, get_bucket(connection, name), **texts, limit=limit)


def _list_kept(connection: Connection, name: str, texts: Mapping[str, str], limit: int) -> FilesKept:
    page = listing.list_files(connection, get_bucket(connection, name), **texts, limit=limit)
    ids = [file.id for file in page.files]
    needs = {found.id: found.needs for found in read_files_to_check(connection, ids)}
    copies = read_copies(connection, ids)
    view = read_storage_view(connection)
    kept = []
    for file in page.files:
        of_file = [row.copy for row in copies[file.id]]
        decision = decide(needs[file.id], of_file, view, Random(file.id))
        wanted, health = needs[file.id].copies, _health_now(decision, of_file, view)
        kept.append(FileKept(file=file, health=health, good=decision.good, wanted=wanted))
    return FilesKept(kept, page.prefixes, page.next_after)


def _health_now(decision: Decision, copies: Sequence[Copy], view: DiskView) -> str:
    is_readable = any(one.state is CopyState.STORED and view.is_online(one.disk_id) for one in copies)
    return UNREADABLE if decision.good and not is_readable else decision.health.value


def _read_status(connection: Connection, bucket: str, key: str) -> FileStatus:
    file = get_file(connection, get_bucket(connection, bucket), key)
    [to_check] = read_files_to_check(connection, [file.id])
    copies = [row.copy for row in read_copies(connection, [file.id])[file.id]]
    view = read_disk_view(connection)
    decision = decide(to_check.needs, copies, view, Random(file.id))
    return FileStatus(
        file=file,
        copies=list_copies(connection, file.id),
        health=_health_now(decision, copies, view),
        good=decision.good,
        wanted=to_check.needs.copies,
        blocked=decision.blocked,
    )


def _move_file(connection: Connection, source: tuple[str, str], target: tuple[str, str]) -> StoredFile:
    bucket = get_bucket(connection, source[0])
    new_bucket = get_bucket(connection, target[0])
    replaced = find_file(connection, new_bucket, target[1])
    moved = move_file(connection, (bucket, source[1]), (new_bucket, target[1]))
    if replaced is not None and replaced.id != moved.id:
        _decide_now(connection, [replaced.id])
    return moved


def _remove_file(connection: Connection, bucket: str, key: str) -> StoredFile:
    removed = delete_file(connection, get_bucket(connection, bucket), key)
    if removed is None:
        raise FileMissing(bucket, key)
    _decide_now(connection, [removed.id])
    return removed


def _remove_below(connection: Connection, name: str, prefix: str, limit: int) -> FilesRemoved:
    bucket = get_bucket(connection, name)
    page = listing.list_files(connection, bucket, prefix=prefix, limit=limit)
    deleted = [delete_file(connection, bucket, file.key) for file in page.files]
    removed = [file for file in deleted if file is not None]
    _decide_now(connection, [file.id for file in removed])
    return FilesRemoved(len(removed), sum(file.size for file in removed), page.next_after is not None)


def _decide_now(connection: Connection, file_ids: Sequence[int]) -> None:
    """Plan what files need whose check was requested in this transaction."""
    view = read_disk_view(connection)
    check_files(connection, lock_checks(connection, file_ids), view, Random())


def _request_checks(connection: Connection, name: str | None, after: int, limit: int, *, verify: bool) -> FilesChecked:
    bucket = None if name is None else get_bucket(connection, name)
    walked = walks.walk_files(connection, bucket, after, limit)
    good = {file_id: min(len(on), DANGER_WITHOUT_COPY - 1) for file_id, on in walked.copies.items()}
    dangers = {file_id: number or DANGER_WITHOUT_COPY for file_id, number in good.items()}
    request_checks(connection, dangers)
    verifications = _request_verifications(connection, walked.copies) if verify else 0
    return FilesChecked(
        len(walked.copies), verifications, None if walked.next_after is None else str(walked.next_after)
    )


def _request_verifications(
    connection: Connection, copies: Mapping[int, Sequence[int]], priority: int = LOW_PRIORITY - 5
) -> int:
    """Have copies read and verified by the nodes of their disks; of those that a task verifies already, no other one.

    Returns:
        how many copies.
    """
    by_disk: dict[int, list[int]] = defaultdict(list)
    for file_id, on in copies.items():
        for disk_id in on:
            by_disk[disk_id].append(file_id)
    found = 0
    for disk in read_disks(connection).disks:
        if disk.state is DiskState.LOST or (disk.node is None and not disk.is_shared):
            continue
        ids = by_disk[disk.id]
        for first in range(0, len(ids), MAX_FILES_OF_TASK):
            group = ids[first : first + MAX_FILES_OF_TASK]
            task = storage_task(VERIFY, disk, group, priority, f"fsck {disk.id} {group[0]:016x}")
            found += len(group) if enqueue(connection, task).created else 0
    return found
