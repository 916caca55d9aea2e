"""Uploads in parts: each part is a content on the upload's disk, and its completion makes one content of them.

All parts of an upload are on one disk, so its node receives them, and completes it. Parts belong to no version, so
they have no copies: an upload is lost with its disk, and its client begins anew.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import msgspec
from sqlalchemy.engine import Connection

from peerd.domain.file_errors import QuotaExceeded, UploadGone
from peerd.domain.files import StoredFile
from peerd.storage.awaiting import Steps
from peerd.storage.disk.content_id import ContentId
from peerd.storage.disk.errors import ContentMissing, DiskError
from peerd.storage.each import do_each
from peerd.storage.local_disks import LocalDisk
from peerd.storage.node import StorageNode
from peerd.storage.receiving import NoDiskHasRoom, Received, Receiving
from peerd.storage.s3.errors import S3Code, S3Error
from peerd.store.files.buckets import Bucket
from peerd.store.files.listing import aborted_uploads, stale_uploads
from peerd.store.files.uploads import (
    Upload,
    UploadedPart,
    add_part,
    bytes_with_uploads,
    complete_upload,
    end_upload,
    forget_completed_uploads,
    mark_aborted,
)
from peerd.store.files.versions import discard_staged, get_version

ABORTED_AFTER: Final = 7 * 86_400.0
"""Seconds after its last part when an upload is aborted."""
ABORTED_AT_ONCE: Final = 100
FORGOTTEN_AT_ONCE: Final = 500
BLOCK: Final = 1024 * 1024


class NewPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part whose bytes were received and verified."""

    number: int
    etag: str
    checksum: str | None = None


def begin_part(node: StorageNode, bucket: Bucket, disk: LocalDisk, size: int) -> Receiving:
    """Begin to receive a part.

    Raises:
        QuotaExceeded: with all unfinished uploads it would not fit into the bucket.
        NoDiskHasRoom: it does not fit onto the disk.
        DiskError: the disk cannot be written.
    """
    if bucket.quota is not None:
        used = node.database.read(bytes_with_uploads, bucket.id)
        if used + size > bucket.quota:
            raise QuotaExceeded(bucket.name, bucket.quota, used, size)
    if all(disk.number != other.number for other in node.disks.for_new(size)):
        raise NoDiskHasRoom(node.name, size)
    return Receiving.begin_on(node, disk, size)


def store_part(node: StorageNode, disk: LocalDisk, upload_id: str, receiving: Receiving, new: NewPart) -> None:
    """Make a part durable, then enter it; one that it replaces is removed.

    Raises:
        UploadGone: the upload was completed or aborted.
        DiskError: it could not be made durable.
    """
    size = receiving.position
    content = receiving.publish_content()
    row = {
        "number": new.number,
        "content_id": content.number,
        "size": size,
        "etag": new.etag,
        "checksum": new.checksum,
    }
    try:
        replaced = node.database.run(add_part, upload_id, row)
    except UploadGone:
        receiving.remove_content()
        raise
    if replaced is not None:
        remove_contents(disk, [replaced])


def assemble(
    node: StorageNode,
    disk: LocalDisk,
    parts: Sequence[UploadedPart],
    see: Callable[[bytes], object] | None = None,
) -> Receiving:
    """Write a content of parts, each compared with its MD5; `complete` publishes it.

    Args:
        node: which has the disk.
        disk: of the upload.
        parts: in their order.
        see: called with each piece of the content.

    Raises:
        NoDiskHasRoom: no disk takes the content.
        S3Error: InvalidPart: a part was replaced or removed meanwhile, or is damaged.
        DiskError: a disk could not be read or written.
    """
    receiving = Receiving.begin(node, sum(part.size for part in parts))
    try:
        for part in parts:
            for data in _read_part(disk, part):
                receiving.write(data)
                if see is not None:
                    see(data)
    except BaseException:
        receiving.close()
        raise
    return receiving


def complete(disk: LocalDisk, upload_id: str, receiving: Receiving, received: Received) -> Steps[StoredFile]:
    """Publish the content of an upload, and end the upload, in one transaction; then remove its parts.

    Raises:
        UploadGone: it was completed or aborted meanwhile.
        PeerdError: what `Receiving.finish` raises.
    """
    contents: list[int] = []

    def end(connection: Connection) -> None:
        contents[:] = complete_upload(connection, upload_id, received.etag or "")

    file = yield from receiving.finish(received, also=end)
    remove_contents(disk, contents)
    return file


def abort(node: StorageNode, upload_id: str, disk: LocalDisk | None) -> None:
    """End an upload, and remove its parts; where the disk is not of this node, they are swept as unknown contents.

    Raises:
        UploadGone: it was completed or aborted before.
    """
    contents = node.database.run(end_upload, upload_id)
    if disk is not None:
        remove_contents(disk, contents)


def abort_stale(node: StorageNode) -> int:
    """Abort uploads that were not touched for a week, and forget those that were completed then; return how many."""
    node.database.run(forget_completed_uploads, ABORTED_AFTER, FORGOTTEN_AT_ONCE)
    numbers = [disk.number for disk in node.disks.usable()]
    found = node.database.read(stale_uploads, numbers, ABORTED_AFTER, ABORTED_AT_ONCE)
    do_each(found, partial(_abort_stale, node))
    return len(found)


def _abort_stale(node: StorageNode, upload: Upload) -> None:
    with contextlib.suppress(UploadGone):
        if upload.content_id is not None:
            node.database.run(mark_aborted, upload.id)  # `remove_aborted` removes its bytes
        else:
            abort(node, upload.id, node.disks.find(upload.disk_id))


def remove_aborted(node: StorageNode) -> None:
    """Remove the bytes of uploads that were aborted, and then their rows.

    Those on which a request still works are left for the next time, and those whose disk is away until it is back.
    """
    numbers = [disk.number for disk in node.disks.usable()]
    found = node.database.read(aborted_uploads, numbers, ABORTED_AT_ONCE)
    do_each(found, lambda upload: remove_upload(node, upload.id, upload.disk_id, upload.content_id))


def remove_upload(node: StorageNode, upload_id: str, disk_id: int, content_id: int | None) -> bool:
    """Remove what is left of an upload that was aborted; whether that was possible."""
    disk = node.disks.find(disk_id)
    try:
        if content_id is not None:
            _remove_incomplete(node, disk, ContentId(content_id))
        contents = node.database.run(end_upload, upload_id)
    except (DiskError, UploadGone):
        return False
    if disk is not None:
        remove_contents(disk, contents)
    node.running_uploads.forget(upload_id)
    return True


def _remove_incomplete(node: StorageNode, disk: LocalDisk | None, content: ContentId) -> None:
    """Remove the part of an upload, and its content if it was published without becoming a version."""
    node.database.run(discard_staged, content.number)
    if disk is None:
        return
    disk.opened.discard_part(content)
    if node.database.read(get_version, content.number) is None:
        with contextlib.suppress(ContentMissing):
            disk.opened.remove(content)


def remove_contents(disk: LocalDisk, contents: Sequence[int]) -> None:
    """Remove contents of parts; those that cannot be removed are swept later."""
    for number in contents:
        with contextlib.suppress(DiskError):
            disk.opened.remove(ContentId(number))


def _read_part(disk: LocalDisk, part: UploadedPart) -> Iterator[bytes]:
    content, md5, position = ContentId(part.content_id), hashlib.md5(usedforsecurity=False), 0
    try:
        opened = disk.opened.open(content)
    except ContentMissing:
        raise S3Error(S3Code.InvalidPart, f"part {part.number} was replaced or removed meanwhile") from None
    with opened:
        while data := opened.read(position, BLOCK):
            md5.update(data)
            position += len(data)
            yield data
    if md5.hexdigest() != part.etag:
        raise S3Error(S3Code.InvalidPart, f"part {part.number} is damaged on disk {disk.number}: upload it again")
