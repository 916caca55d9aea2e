"""Receiving a file: a part on a disk of this node, hashed on the way, then published, then in the catalogue.

With a class that wants more durable copies, the version is staged first: it has its copies made, and becomes current in
one transaction when enough of them exist. A put that is not acknowledged leaves nothing that a reader could find.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Self

import msgspec
from sqlalchemy.engine import Connection

from peerd.domain.errors import DatabaseUnavailable, PeerdError
from peerd.domain.files import CopyState, FileClass, StoredFile, check_key
from peerd.domain.size import format_size
from peerd.storage.auditing import PUT, FileAuditor, state_of
from peerd.storage.disk.content_id import ContentId, new_content_id
from peerd.storage.disk.digest import Digest
from peerd.storage.disk.errors import DiskError
from peerd.storage.disk.open_disk import ContentWriter
from peerd.storage.local_disks import LocalDisk
from peerd.storage.node import StorageNode
from peerd.storage.placement.brake import DiskView
from peerd.storage.placement.decision import counts
from peerd.storage.put_groups import EnteredPut
from peerd.store.access.audit import NewAuditEntry
from peerd.store.files.buckets import Bucket, get_bucket_and_class
from peerd.store.files.checks import read_copies
from peerd.store.files.publishing import FilePut
from peerd.store.files.versions import Condition, NewFile, discard_staged, get_version, stage

FIRST_PAUSE: Final = 0.01
LONGEST_PAUSE: Final = 0.5
"""Seconds between two looks whether copies are durable."""


class NoDiskHasRoom(PeerdError):
    """No disk of this node takes a content of this size."""

    def __init__(self, node: str, size: int) -> None:
        self.node = node
        self.size = size
        super().__init__(
            f"no disk of node {node} has room for {format_size(size)}; put it on another node, or add a disk"
        )


class TooFewDurable(PeerdError):
    """A put was not acknowledged: fewer copies than its class wants were durable in time. Nothing was stored."""

    def __init__(self, durable: int, wanted: int, seconds: float) -> None:
        self.durable = durable
        self.wanted = wanted
        self.seconds = seconds
        super().__init__(
            f"{durable} of {wanted} copies were durable within {seconds:g} s, so nothing was stored; "
            "see which disks are online: peerd files disks list"
        )


class BodyDiffers(PeerdError, ValueError):
    """What was received is not what the client had announced."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"{problem}; nothing was stored")


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """What a put says of its file.

    Attributes:
        class_name: None: that of the bucket.
        blake3: in hex, which the content must have.
        etag: for S3's clients.
        headers: for S3's clients; see `StoredFile`.
        auditor: writes the entry of the audit log; None: there is none.
        arguments: that the entry has too.
    """

    bucket: str
    key: str
    class_name: str | None = None
    content_type: str | None = None
    metadata: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    expires_in: float | None = None
    blake3: str | None = None
    etag: str | None = None
    condition: Condition = Condition()
    auditor: FileAuditor | None = None
    arguments: Mapping[str, str] = {}


class Receiving:
    """A put that is being received; closed at the end of ``with``. Without `finish` nothing is left of it.

    Args:
        node: which receives it.
        disk: of its first copy.
        part: on it.
    """

    def __init__(self, node: StorageNode, disk: LocalDisk, part: ContentWriter) -> None:
        self._node = node
        self._disk = disk
        self._part = part
        self._is_content = False
        self._is_closed = False
        self.durable_within = node.options.durable_within
        self._lock = threading.Lock()
        """A request that is cancelled closes it while a thread still writes or publishes."""

    @classmethod
    def begin(cls, node: StorageNode, size: int | None) -> Self:
        """Begin a part on the disk with the most room.

        Args:
            node: which receives it.
            size: bytes, if the client has announced them: their space is reserved.

        Raises:
            NoDiskHasRoom: none takes it.
        """
        for disk in node.disks.for_new(size or 0):
            with contextlib.suppress(DiskError):
                return cls.begin_on(node, disk, size)
        raise NoDiskHasRoom(node.name, size or 0)

    @classmethod
    def begin_on(cls, node: StorageNode, disk: LocalDisk, size: int | None) -> Self:
        """Begin a part on a disk. Raises DiskError."""
        try:
            return cls(node, disk, disk.opened.begin(new_content_id(time.time()), size))
        except DiskError as error:
            node.disks.failed(disk.number, error)
            raise

    @property
    def position(self) -> int:
        """Bytes that are written."""
        return self._part.position

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes. Raises DiskError."""
        with self._lock:
            try:
                self._part.write(data)
            except DiskError as error:
                self._node.disks.failed(self._disk.number, error)
                raise

    def finish(self, received: Received, also: Callable[[Connection], object] | None = None) -> StoredFile:
        """Publish the content, and enter it into the catalogue; wait until it is as durable as its class wants.

        Args:
            received: what it becomes.
            also: called in the transaction that makes it current; its errors are those of the put.

        Raises:
            BodyDiffers: the content has another hash than was announced.
            BucketNotFound, FileClassNotFound, InvalidFile, QuotaExceeded, FileConditionFailed: see `publish_many`.
            TooFewDurable: copies were not made in time.
            DiskError: it could not be made durable.
        """
        with self._lock:
            return self._finish(received, also)

    def _finish(self, received: Received, also: Callable[[Connection], object] | None) -> StoredFile:
        check_key(received.key)
        bucket, kept = self._node.database.read(get_bucket_and_class, received.bucket, received.class_name)
        digest = self._part.checked_digest(None)
        if received.blake3 is not None and digest.blake3.hex() != received.blake3.lower():
            raise BodyDiffers(f"the body has BLAKE3 {digest.blake3.hex()}, announced was {received.blake3}")
        self.publish_content()
        new = _new_file(self._part, self._disk, digest, received, kept.name)
        try:
            return self._enter(bucket, new, received, kept, also)
        except DatabaseUnavailable:
            raise  # it may be in the catalogue; if it is not, the content is removed as an unknown one
        except PeerdError:
            self._node.database.run(discard_staged, new.id)  # where it was staged, it has copies on other disks, too
            self.remove_content()
            raise

    def publish_content(self) -> ContentId:
        """Make it a content, durably, without entering it into the catalogue; return its id. Raises DiskError."""
        try:
            self._part.publish()
        except DiskError as error:
            self._node.disks.failed(self._disk.number, error)
            raise
        self._is_content = True
        return self._part.content

    def remove_content(self) -> None:
        """Remove the content again."""
        with contextlib.suppress(DiskError):
            self._disk.opened.remove(self._part.content)

    def _enter(
        self,
        bucket: Bucket,
        new: NewFile,
        received: Received,
        kept: FileClass,
        also: Callable[[Connection], object] | None,
    ) -> StoredFile:
        """Enter the version into the catalogue."""
        if kept.durable > 1:
            view = self._node.view()

            def stage_and_plan(connection: Connection) -> None:
                if get_version(connection, new.id) is None:  # a completion that was interrupted has staged it
                    stage(connection, bucket, new)
                self._node.check(connection, [new.id], view)

            self._node.database.run(stage_and_plan)
            self._node.ring()
            self._wait_until_durable(new.id, kept.durable)
        entry = None if received.auditor is None else partial(_entry_of, received.auditor, received.arguments)
        put = FilePut(bucket, new, received.condition)
        published = self._node.puts.publish(EnteredPut(put=put, file_class=kept, entry=entry, also=also))
        self._node.ring()
        return published

    def close(self) -> None:
        """End it; a part that is not published is removed."""
        with self._lock:
            if not self._is_content and not self._is_closed:
                with contextlib.suppress(DiskError):
                    self._part.discard()
            self._part.close()
            self._is_closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait_until_durable(self, file_id: int, wanted: int) -> None:
        began, pause = time.monotonic(), FIRST_PAUSE
        while (durable := _durable_copies(self._node, file_id)) < wanted:
            seconds = self.durable_within
            if time.monotonic() - began > seconds:
                self._node.database.run(discard_staged, file_id)
                raise TooFewDurable(durable, wanted, seconds)
            time.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 1.5)


def _durable_copies(node: StorageNode, file_id: int) -> int:
    """On how many nodes a version has a copy."""
    view: DiskView = node.view()
    rows = node.database.read(read_copies, [file_id])[file_id]
    stored = [row.copy for row in rows if row.copy.state is CopyState.STORED and counts(row.copy, view)]
    return len({view.disks[copy.disk_id].site for copy in stored})


def _entry_of(
    auditor: FileAuditor, arguments: Mapping[str, str], replaced: StoredFile | None, published: StoredFile
) -> NewAuditEntry:
    path, before = f"{published.bucket}/{published.key}", None if replaced is None else state_of(replaced)
    return auditor.entry(PUT, path, before, state_of(published), **arguments)


def _new_file(part: ContentWriter, disk: LocalDisk, digest: Digest, received: Received, class_name: str) -> NewFile:
    return NewFile(
        id=part.content.number,
        key=received.key,
        class_name=class_name,
        size=digest.size,
        blake3=digest.blake3.hex(),
        disk_id=disk.number,
        chunk_size=digest.chunk_size if digest.chunks else 0,
        chunks=b"".join(digest.chunks),
        etag=received.etag,
        content_type=received.content_type,
        metadata=received.metadata,
        headers=received.headers,
        expires_in=received.expires_in,
    )
