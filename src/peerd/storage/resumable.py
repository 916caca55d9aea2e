"""Resumable uploads, as the node with their disk carries them out.

Each part of an upload is appended to one part of a content: received, compared with its BLAKE3, made durable, and then
counted in the upload's row. So the parts of a large upload need not be put together in the end: the completion
compares the BLAKE3 of all, which was computed on the way, and publishes the content as a put does. After a restart of
the process the completion hashes the bytes again from the disk, once.

All bytes are on one disk. An upload is lost with it, and its client begins anew on another node.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from typing import Final, Self

from blake3 import blake3
from sqlalchemy.engine import Connection

from peerd.domain.errors import DatabaseUnavailable, PeerdError
from peerd.domain.file_errors import UploadGone, UploadPositionDiffers
from peerd.domain.files import FileState, StoredFile
from peerd.storage.auditing import FileAuditor
from peerd.storage.awaiting import Steps, TooFewDurable
from peerd.storage.disk.content_id import ContentId, new_content_id
from peerd.storage.disk.digest import ContentHasher, ContentReading, Digest, hash_file, refuse_difference
from peerd.storage.disk.errors import ContentExists, ContentMismatch, DiskError
from peerd.storage.disk.folder_disk import FileContent, FolderDisk
from peerd.storage.disk.upload_part import AppendedPart, begin_upload_part
from peerd.storage.local_disks import LocalDisk
from peerd.storage.node import StorageNode
from peerd.storage.receiving import BodyDiffers, NoDiskHasRoom, Received, Receiving
from peerd.storage.upload_protocol import DIGEST, MAX_SIZE
from peerd.storage.uploads import remove_upload
from peerd.store.files.buckets import get_bucket_and_class
from peerd.store.files.uploads import (
    NewUpload,
    Upload,
    advance_upload,
    complete_upload,
    enter_upload,
    find_completed_version,
    get_resumable,
    mark_aborted,
)
from peerd.store.files.versions import get_version

COPIED_PER_SECOND: Final = 10 * 1024**2
"""A completion waits for the copies that its class wants as long as a slow disk needs for them …"""
LONGEST_WAIT: Final = 3_000.0
"""… but less than an hour, after which a version is discarded that is not current."""


class UploadDisk(PeerdError):
    """The disk that has the bytes of an upload is not one of this node now."""

    def __init__(self, upload_id: str, disk: int) -> None:
        self.upload_id = upload_id
        self.disk = disk
        super().__init__(f"disk {disk}, which has the bytes of the upload {upload_id}, cannot be used by this node now")


def begin_upload(node: StorageNode, received: Received, size: int | None, source: str | None) -> Upload:
    """Begin an upload on the folder of this node with the most room, where the space of all of it is reserved.

    Args:
        node: which receives it.
        received: what it becomes.
        size: its bytes, if they are known.
        source: by which its client finds it again.

    Raises:
        NoDiskHasRoom: no folder takes it.
        BucketNotFound, FileClassNotFound, InvalidFile, QuotaExceeded, FileConditionFailed: it cannot be stored so.
    """
    disk, content = _begin_part(node, size)
    upload_id = uuid.uuid4().hex

    def enter(connection: Connection) -> Upload:
        bucket, kept = get_bucket_and_class(connection, received.bucket, received.class_name)
        new = NewUpload(
            id=upload_id,
            key=received.key,
            disk_id=disk.number,
            content_id=content.number,
            class_name=kept.name,
            content_type=received.content_type,
            metadata=received.metadata,
            size=size,
            source=source,
            expires_in=received.expires_in,
            condition=received.condition,
            created_by=None if received.auditor is None else received.auditor.actor.name[:200],
        )
        enter_upload(connection, bucket, new)
        return get_resumable(connection, upload_id)

    try:
        return node.database.run(enter)
    except DatabaseUnavailable:
        raise  # it may have begun; if it has not, the part is removed as an old one
    except PeerdError:
        disk.opened.discard_part(content)
        raise


def _begin_part(node: StorageNode, size: int | None) -> tuple[LocalDisk, ContentId]:
    for disk in node.disks.for_new(size or 0):
        if not isinstance(disk.opened, FolderDisk):
            continue
        content = new_content_id(time.time())
        try:
            begin_upload_part(disk.opened.folder, content, size)
        except DiskError as error:
            node.disks.failed(disk.number, error)
            continue
        return disk, content
    raise NoDiskHasRoom(node.name, size or 0)


class PartOfUpload:
    """A part of an upload that is being received; closed at the end of ``with``. Without `finish` it does not count.

    Args:
        node: which receives it.
        upload: of the part.
        disk: of the upload.
        part: which is open.
        size: its bytes.
    """

    def __init__(self, node: StorageNode, upload: Upload, disk: LocalDisk, part: AppendedPart, size: int) -> None:
        self._node = node
        self._upload = upload
        self._disk = disk
        self._part = part
        self._left = size
        self._size = size
        self._hash = blake3()
        self._announced = bytearray()
        self._lock = threading.Lock()
        """A request that is cancelled closes it while a thread still writes."""

    @classmethod
    def begin(cls, node: StorageNode, upload_id: str, offset: int, size: int) -> Self:
        """Begin to receive a part.

        Args:
            node: which receives it.
            upload_id: of the upload.
            offset: where it begins, which is where the durable bytes end.
            size: its bytes; its BLAKE3 follows them.

        Raises:
            UploadGone: there is no such upload.
            UploadPositionDiffers: it begins elsewhere.
            BodyDiffers: it would end behind the end of the whole.
            UploadDisk: the upload is on another node.
            NoDiskHasRoom: its disk takes no more.
            PartInUse: another request writes to the upload.
            DiskError: the disk cannot be written.
        """
        upload = node.database.read(get_resumable, upload_id)
        _check_position(upload, offset)
        if offset + size > (MAX_SIZE if upload.size is None else upload.size):
            raise BodyDiffers(f"the part ends at byte {offset + size}, behind the end of the whole")
        disk = _disk_of(node, upload)
        if upload.size is None and all(disk.number != other.number for other in node.disks.for_new(size)):
            raise NoDiskHasRoom(node.name, size)
        return cls(node, upload, disk, _open_part(node, upload, disk), size)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """The next bytes of the body: those of the part, and then its BLAKE3. Raises DiskError, BodyDiffers."""
        with self._lock:
            view = memoryview(data)
            piece, rest = view[: self._left], view[self._left :]
            self._announced += rest
            if len(self._announced) > DIGEST:
                raise BodyDiffers("the body of the part is longer than announced")
            if piece:
                self._hash.update(piece)
                try:
                    self._part.write(piece)
                except DiskError as error:
                    self._node.disks.failed(self._disk.number, error)
                    raise
                self._left -= len(piece)

    def finish(self) -> int:
        """Make it durable, then count it; return how many bytes of the upload are durable.

        Raises:
            BodyDiffers: it is shorter, or has another BLAKE3.
            UploadGone: the upload was aborted meanwhile.
            QuotaExceeded: it does not fit into the bucket.
            DiskError: it could not be made durable.
        """
        with self._lock:
            if self._left or bytes(self._announced) != self._hash.digest():
                raise BodyDiffers(f"the part has BLAKE3 {self._hash.hexdigest()}, and not what follows it")
            try:
                self._part.sync()
            except DiskError as error:
                self._node.disks.failed(self._disk.number, error)
                raise
            upload = self._upload
            received = self._node.database.run(advance_upload, upload.id, upload.received, self._size)
            self._node.running_uploads.keep(upload.id, self._part.hasher)
            return received

    def close(self) -> None:
        """Close it."""
        with self._lock:
            self._part.close()


def complete(node: StorageNode, upload_id: str, size: int, digest: str, auditor: FileAuditor) -> Steps[StoredFile]:
    """Make a file of an upload; again after it was done, it returns that file.

    Args:
        node: which has the disk.
        upload_id: of the upload.
        size: bytes of the whole.
        digest: its BLAKE3, in hex. If the bytes have another one, the upload is aborted.
        auditor: writes the entry of the audit log.

    Raises:
        UploadGone: it was aborted, or its file has been replaced since.
        UploadPositionDiffers: not all bytes have been received.
        BodyDiffers: the bytes have another BLAKE3.
        UploadDisk: the upload is on another node.
        PartInUse: another request writes to it, or completes it.
        PeerdError: what `Receiving.finish` raises.
    """
    try:
        upload = node.database.read(get_resumable, upload_id)
    except UploadGone:
        return _completed(node, upload_id)
    _check_position(upload, size)
    if upload.size not in {None, size}:
        raise UploadPositionDiffers(upload_id, size, upload.received)
    staged = node.database.read(get_version, upload.content)
    if staged is not None and staged.state is not FileState.STAGED:  # its copies were not durable in time
        abort(node, upload)
        raise UploadGone(upload_id)
    disk = _disk_of(node, upload)

    def end(connection: Connection) -> None:
        complete_upload(connection, upload_id, str(ContentId(upload.content)))

    received = Received(
        bucket=upload.bucket,
        key=upload.key,
        class_name=upload.class_name,
        content_type=upload.content_type,
        metadata=upload.metadata,
        expires_in=upload.expires_in,
        blake3=digest,
        condition=upload.condition,
        auditor=auditor,
    )
    try:
        with _Completion(node, disk, _whole_part(node, upload, disk)) as receiving:
            receiving.durable_within = max(
                receiving.durable_within, min(LONGEST_WAIT, node.options.durable_within + size / COPIED_PER_SECOND)
            )
            file = yield from receiving.finish(received, also=end)
    except (*_Completion.KEPT_AFTER, DiskError, UploadDisk, UploadPositionDiffers):
        raise  # it can be completed again
    except UploadGone:
        return _completed(node, upload_id)
    except PeerdError:
        with contextlib.suppress(UploadGone):
            abort(node, upload)
        raise
    node.running_uploads.forget(upload_id)
    if not file.version:  # it was aborted while its copies were made, and was never current
        raise UploadGone(upload_id)
    return file


def abort(node: StorageNode, upload: Upload) -> None:
    """End an upload, and remove its bytes; where its disk is in use or away, that is done later. Raises UploadGone."""
    node.database.run(mark_aborted, upload.id)
    if node.disks.find(upload.disk_id) is not None:
        remove_upload(node, upload.id, upload.disk_id, upload.content_id)


def _completed(node: StorageNode, upload_id: str) -> StoredFile:
    """The file that an upload has become. Raises UploadGone if it has become none, or its file is gone."""
    found = node.database.read(find_completed_version, upload_id)
    if found is None:
        raise UploadGone(upload_id)
    return found


def _disk_of(node: StorageNode, upload: Upload) -> LocalDisk:
    disk = node.disks.find(upload.disk_id)
    if disk is None:
        raise UploadDisk(upload.id, upload.disk_id)
    return disk


def _check_position(upload: Upload, position: int) -> None:
    if upload.received != position:
        raise UploadPositionDiffers(upload.id, position, upload.received)


def _open_part(node: StorageNode, upload: Upload, disk: LocalDisk) -> AppendedPart:
    """Open the part of an upload. An upload whose bytes are damaged is aborted.

    Raises:
        UploadGone, DiskError: it cannot be opened.
        UploadPositionDiffers: before it was locked, another request has put bytes.
    """
    assert isinstance(disk.opened, FolderDisk), "uploads begin in folders"

    def state() -> tuple[int, ContentHasher | None]:
        _check_position(node.database.read(get_resumable, upload.id), upload.received)
        return upload.received, node.running_uploads.hasher(upload.id, upload.received)

    content = ContentId(upload.content)
    try:
        return AppendedPart.resume(disk.opened.folder, content, size=upload.size, state=state)
    except ContentMismatch:
        abort(node, upload)
        raise UploadGone(upload.id) from None


def _whole_part(node: StorageNode, upload: Upload, disk: LocalDisk) -> AppendedPart | _PublishedPart:
    try:
        part = _open_part(node, upload, disk)
    except ContentExists:
        return _PublishedPart(disk, ContentId(upload.content))
    try:
        part.hash_rest(ContentReading())
    except BaseException:
        part.close()
        raise
    node.running_uploads.keep(upload.id, part.hasher.copy())
    return part


class _Completion(Receiving):
    """The completion of an upload: its bytes stay, to be completed again; with too few copies, staged for an hour."""

    KEPT_AFTER = (DatabaseUnavailable, TooFewDurable)

    def close(self) -> None:
        with self._lock:
            self._part.close()
            self._is_closed = True


class _PublishedPart:
    """A content that was published by a completion whose process ended before its transaction; as `ContentWriter`."""

    def __init__(self, disk: LocalDisk, content: ContentId) -> None:
        self.content = content
        opened = disk.opened.open(content)
        assert isinstance(opened, FileContent)
        self._opened = opened
        self._digest: Digest | None = None

    @property
    def position(self) -> int:
        return self._opened.size

    def write(self, data: bytes | bytearray | memoryview) -> None:
        raise ValueError(f"{self.content} is a content already: nothing is written to it")

    def checked_digest(self, expected: Digest | None) -> Digest:
        if self._digest is None:
            self._digest = hash_file(self._opened.fd)
        if expected is not None:
            refuse_difference(expected, self._digest, str(self.content))
        return self._digest

    def publish(self, expected: Digest | None = None) -> Digest:
        return self.checked_digest(expected)

    def discard(self) -> None:
        self.close()

    def close(self) -> None:
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
