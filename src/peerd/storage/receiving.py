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
from typing import ClassVar, Self

import msgspec
from sqlalchemy.engine import Connection

from peerd.domain.errors import DatabaseUnavailable, PeerdError
from peerd.domain.files import FileClass, StoredFile, check_key
from peerd.domain.units import format_size
from peerd.storage.auditing import PUT, FileAuditor, state_of
from peerd.storage.awaiting import CopiesWanted, Steps
from peerd.storage.disk.content_id import ContentId, new_content_id
from peerd.storage.disk.digest import Digest
from peerd.storage.disk.errors import DiskError
from peerd.storage.disk.open_disk import ContentWriter
from peerd.storage.local_disks import LocalDisk
from peerd.storage.node import StorageNode
from peerd.storage.put_groups import EnteredPut
from peerd.store.audit import NewAuditEntry
from peerd.store.files.buckets import Bucket, get_bucket_and_class
from peerd.store.files.publishing import FilePut
from peerd.store.files.versions import Condition, NewFile, discard_staged, get_version, stage, stage_again


class NoDiskHasRoom(PeerdError):
    """No disk of this node takes a content of this size."""

    def __init__(self, node: str, size: int) -> None:
        self.node = node
        self.size = size
        super().__init__(
            f"no disk of node {node} has room for {format_size(size)}; put it on another node, or add a disk"
        )


class BodyDiffers(PeerdError, ValueError):
    """What was received is not what the client had announced."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"{problem}; nothing was stored")


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """What a put says of its file.

    Attributes:
        class_name: None: the class of the bucket.
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

    KEPT_AFTER: ClassVar[tuple[type[PeerdError], ...]] = (DatabaseUnavailable,)
    """Errors that leave the content: it may be in the catalogue; if it is not, it is removed as an unknown one."""

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

    def finish(self, received: Received, also: Callable[[Connection], object] | None = None) -> Steps[StoredFile]:
        """Publish the content, and enter it into the catalogue, when it is as durable as its class wants.

        Args:
            received: what it becomes.
            also: called in the transaction that makes it current; its errors are those of the put.

        Raises:
            BodyDiffers: the content has another hash than was announced.
            BucketNotFound, FileClassNotFound, InvalidFile, QuotaExceeded, FileConditionFailed: see `PutGroups.publish`.
            TooFewDurable: copies were not made in time.
            DiskError: it could not be made durable.
        """
        with self._lock:
            bucket, kept, new = self._publish(received)
        try:
            if kept.durable > 1:
                self._stage(bucket, new)
                yield CopiesWanted(new.id, kept.durable, self.durable_within)
            entry = None if received.auditor is None else partial(_entry_of, received.auditor, received.arguments)
            put = FilePut(bucket, new, received.condition)
            published = self._node.puts.publish(EnteredPut(put=put, file_class=kept, entry=entry, also=also))
            self._node.ring()
            return published
        except self.KEPT_AFTER:
            raise
        except PeerdError:
            self._take_back(new.id)
            raise

    def _publish(self, received: Received) -> tuple[Bucket, FileClass, NewFile]:
        check_key(received.key)
        bucket, kept = self._node.database.read(get_bucket_and_class, received.bucket, received.class_name)
        digest = self._part.checked_digest(None)
        if received.blake3 is not None and digest.blake3.hex() != received.blake3.lower():
            raise BodyDiffers(f"the body has BLAKE3 {digest.blake3.hex()}, announced was {received.blake3}")
        self.publish_content()
        return bucket, kept, _new_file(self._part, self._disk, digest, received, kept.name)

    def _stage(self, bucket: Bucket, new: NewFile) -> None:
        """Have the copies of a version made before it is current."""
        view = self._node.view()

        def stage_and_plan(connection: Connection) -> None:
            if get_version(connection, new.id) is None:
                stage(connection, bucket, new)
            else:  # by a completion that was interrupted, or whose copies were not made in time
                stage_again(connection, new.id)
            self._node.check(connection, [new.id], view)

        self._node.database.run(stage_and_plan)
        self._node.ring()

    def _take_back(self, file_id: int) -> None:
        """Remove the content of a put that has failed; where it was staged, its check removes that and all copies."""

        def discard(connection: Connection) -> bool:
            discard_staged(connection, file_id)
            self._node.check(connection, [file_id], view)
            return get_version(connection, file_id) is not None

        view = self._node.view()
        if self._node.database.run(discard):
            self._node.ring()
        else:
            self.remove_content()

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
