"""Uploads in parts. What needs the disk of an upload is done by the node that has it: others relay the request."""

from __future__ import annotations

import re
import uuid
from asyncio import to_thread
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from sqlalchemy.engine import Connection

from peerd.domain.file_errors import DiskNotFound, FileConditionFailed, FileMissing, UploadGone
from peerd.domain.files import StoredFile
from peerd.storage import uploads
from peerd.storage.awaiting import Steps
from peerd.storage.local_disks import LocalDisk
from peerd.storage.receiving import NoDiskHasRoom, Received
from peerd.storage.s3 import documents, operations, responses
from peerd.storage.s3.checksums import CHECKSUM_SIZES, decoded_digest, encoded_digest, new_checksum
from peerd.storage.s3.documents import CompletedPart
from peerd.storage.s3.errors import S3Code, S3Error
from peerd.storage.s3.operations import CHECKSUM_ALGORITHM, CHECKSUM_TYPE, Checksum, ChecksumKind
from peerd.storage.s3.responses import PartEntry, S3Response, UploadEntry, etag_of_part, etag_of_upload
from peerd.storage.s3_front.exchange import OWNER, S3Exchange
from peerd.storage.s3_front.objects import check_size, copy_content, find_class, find_source
from peerd.storage.s3_front.relaying import DiskUnavailable, relay
from peerd.storage.s3_front.stored_objects import (
    CHECKSUM_PREFIX,
    PARTS,
    checksums_of,
    condition_of,
    etag_of,
    kept_with,
    part_sizes_as_text,
    storage_class_of,
)
from peerd.storage.uploads import NewPart
from peerd.store.files.buckets import get_bucket
from peerd.store.files.disks import DiskRow, get_disk
from peerd.store.files.listing import find_with_sources, list_uploads
from peerd.store.files.uploads import (
    CompletedUpload,
    NewUpload,
    Upload,
    UploadedPart,
    enter_upload,
    find_completed_upload,
    find_upload,
    list_parts,
)

MIN_PART: Final = 5 * 1024**2
"""Bytes of each part but the last one, as in S3."""
MAX_OBJECT: Final = 5 * 1024**4
_UPLOAD_ID: Final = re.compile(r"[0-9a-f]{32}")


async def create_upload(exchange: S3Exchange, operation: operations.CreateMultipartUpload) -> None:
    """Begin an upload on the disk of this node that has the most room."""
    await exchange.document(0)
    node, kept = exchange.node, kept_with(operation.object_headers)
    if operation.checksum_kind is not None:
        kept["headers"] |= operation.checksum_kind.headers
    for_new = await to_thread(node.disks.for_new, MIN_PART)
    if not for_new:
        raise NoDiskHasRoom(node.name, MIN_PART)
    upload_id = uuid.uuid4().hex

    def begin(connection: Connection) -> None:
        class_name = find_class(connection, operation.bucket, operation.storage_class)
        new = NewUpload(
            id=upload_id,
            key=operation.key,
            disk_id=for_new[0].number,
            class_name=class_name,
            created_by=exchange.key.id,
            **kept,
        )
        enter_upload(connection, get_bucket(connection, operation.bucket), new)

    await to_thread(node.database.run, begin)
    await exchange.send(responses.upload_response(operation, upload_id))


async def upload_part(exchange: S3Exchange, operation: operations.UploadPart) -> None:
    """Store the body as a part, when its signature, length and digests are verified."""
    upload = await _find(exchange, operation)
    disk = await _own_disk(exchange, upload)
    if disk is None:
        return
    kind = _checksum_kind_of(upload)
    node, reader = exchange.node, exchange.content_reader(None if kind is None else kind.algorithm)
    check_size(reader.length)
    bucket = await to_thread(node.database.read, get_bucket, upload.bucket)
    receiving = await to_thread(uploads.begin_part, node, bucket, disk, reader.length)
    try:
        digests = await exchange.receive(reader, receiving.write)
        new = _new_part(operation, etag_of_part(digests.md5), digests.checksums)
        await to_thread(uploads.store_part, node, disk, upload.id, receiving, new)
    finally:
        await to_thread(receiving.close)
    await exchange.send(responses.put_response(new.etag, digests.checksums))


async def copy_part(exchange: S3Exchange, operation: operations.UploadPartCopy) -> None:
    """Store an object, or a range of it, as a part."""
    upload = await _find(exchange, operation)
    disk = await _own_disk(exchange, upload)
    if disk is None:
        return
    await exchange.document(0)
    node = exchange.node
    source = await to_thread(find_source, node, operation.source)
    start, stop = (0, source.size) if operation.range is None else operation.range.within(source.size)
    if operation.range is not None and operation.range.last != stop - 1:
        raise S3Error(S3Code.InvalidRange, ActualObjectSize=str(source.size))
    check_size(stop - start)
    bucket = await to_thread(node.database.read, get_bucket, upload.bucket)
    kind = _checksum_kind_of(upload)
    algorithm = None if kind is None else kind.algorithm

    def copy() -> Steps[S3Response]:
        yield from ()  # no copies are awaited
        with uploads.begin_part(node, bucket, disk, stop - start) as receiving:
            etag, sums = copy_content(node, source, start, stop, receiving.write, algorithm)
            new = _new_part(operation, etag, sums)
            uploads.store_part(node, disk, upload.id, receiving, new)
        found = node.database.read(list_parts, upload.id, after=operation.part_number - 1, limit=1)
        if not found:
            raise UploadGone(upload.id)
        return responses.copied_response(etag, found[0].created_at, sums, is_part=True)

    await exchange.send_when_done(copy())


async def complete_upload(exchange: S3Exchange, operation: operations.CompleteMultipartUpload) -> None:
    """Make an object of the parts that the body names.

    A client that has lost the response completes the upload again, with the same parts: it gets the same response, also
    while the first completion still runs, and whatever has become of the object since.
    """
    scheme, path = exchange.request.scope["scheme"], exchange.http.path.decode("utf-8", "replace")
    location = f"{scheme}://{exchange.http.header('host') or ''}{path}"
    upload = await _find_also_completed(exchange, operation)
    if isinstance(upload, CompletedUpload):
        document = await exchange.document(documents.MAX_PARTS_DOCUMENT, has_checksum_headers=False)
        _check_same(upload, documents.completed_parts(document))
        sums = await to_thread(_checksums_now, exchange, operation, upload.etag)
        await exchange.send(responses.completed_response(operation, upload.etag, location, sums))
        return
    disk = await _own_disk(exchange, upload)
    if disk is None:
        return
    document = await exchange.document(documents.MAX_PARTS_DOCUMENT, has_checksum_headers=False)
    wanted = documents.completed_parts(document)
    condition_of(operation.conditions)

    def complete() -> Steps[S3Response]:
        try:
            parts = _checked_parts(exchange, operation, wanted)
            file = yield from _complete(exchange, operation, upload, disk, parts)
            etag, sums = etag_of(file), checksums_of(file)
        except (UploadGone, FileConditionFailed, S3Error):
            found = _find_completed(exchange, operation)
            if found is None:
                raise
            _check_same(found, wanted)  # another request has completed it meanwhile
            etag, sums = found.etag, _checksums_now(exchange, operation, found.etag)
        return responses.completed_response(operation, etag, location, sums)

    await exchange.send_when_done(complete())


async def abort_upload(exchange: S3Exchange, operation: operations.AbortMultipartUpload) -> None:
    """End an upload, and remove its parts; if the node of its disk is away, they are swept when it comes back."""
    upload = await _find(exchange, operation)
    disk: LocalDisk | None = None
    with suppress(DiskUnavailable):
        disk = await _own_disk(exchange, upload)
        if disk is None:
            return
    await to_thread(uploads.abort, exchange.node, upload.id, disk)
    await exchange.send(responses.empty_response(204))


async def send_parts(exchange: S3Exchange, operation: operations.ListParts) -> None:
    """Send a page of the parts of an upload."""
    upload = await _find(exchange, operation)
    limit = operation.max_parts
    read = exchange.node.database.read
    found = await to_thread(read, list_parts, upload.id, after=operation.marker, limit=limit + 1)
    entries = [
        PartEntry(
            number=part.number,
            size=part.size,
            etag=part.etag,
            modified=part.created_at,
            checksums=_checksums_of_part(part),
        )
        for part in found[:limit]
    ]
    kind = _checksum_kind_of(upload)
    await exchange.send(responses.parts_response(operation, entries, OWNER, kind, is_truncated=len(found) > limit))


async def send_uploads(exchange: S3Exchange, operation: operations.ListMultipartUploads) -> None:
    """Send a page of the uploads of a bucket that have not ended."""

    def read(connection: Connection) -> S3Response:
        bucket = get_bucket(connection, operation.bucket)
        page = list_uploads(
            connection,
            bucket,
            prefix=operation.prefix,
            after=(operation.key_marker, operation.upload_id_marker or None),
            delimiter=operation.delimiter,
            limit=operation.max_uploads,
        )
        entries = [
            UploadEntry(
                key=upload.key,
                upload_id=upload.id,
                begun=upload.created_at,
                storage_class=storage_class_of(upload.class_name, bucket),
                checksum_kind=_checksum_kind_of(upload),
            )
            for upload in page.uploads
        ]
        return responses.uploads_response(operation, entries, OWNER, prefixes=page.prefixes, next_after=page.next_after)

    await exchange.send(await to_thread(exchange.node.database.read, read))


async def _find(exchange: S3Exchange, operation: operations.UploadOperation) -> Upload:
    """The upload of a request. Raises S3Error: NoSuchUpload, also for one of another key."""
    upload = None
    if _UPLOAD_ID.fullmatch(operation.upload_id):
        upload = await to_thread(exchange.node.database.read, find_upload, operation.upload_id)
    if upload is None or (upload.bucket, upload.key) != (operation.bucket, operation.key):
        raise S3Error(S3Code.NoSuchUpload)
    return upload


async def _find_also_completed(
    exchange: S3Exchange, operation: operations.CompleteMultipartUpload
) -> Upload | CompletedUpload:
    """The upload of a request, also one that was completed. Raises S3Error: NoSuchUpload."""
    completed = await to_thread(_find_completed, exchange, operation)
    if completed is not None:
        return completed
    try:
        return await _find(exchange, operation)
    except S3Error:
        completed = await to_thread(_find_completed, exchange, operation)  # by another request, since it was looked for
        if completed is None:
            raise
        return completed


def _checksum_kind_of(upload: Upload) -> ChecksumKind | None:
    """For which checksum an upload was begun."""
    algorithm = upload.headers.get(CHECKSUM_ALGORITHM)
    if algorithm is None:
        return None
    return ChecksumKind(algorithm.lower(), is_of_parts=upload.headers[CHECKSUM_TYPE] == "COMPOSITE")


def _new_part(operation: operations.UploadPart, etag: str, checksums: Mapping[str, str]) -> NewPart:
    checksum = next((f"{name}:{value}" for name, value in checksums.items()), None)
    return NewPart(number=operation.part_number, etag=etag, checksum=checksum)


def _checksums_of_part(part: UploadedPart) -> dict[str, str]:
    return dict([part.checksum.split(":", 1)]) if part.checksum is not None else {}


def _checksums_now(exchange: S3Exchange, operation: operations.UploadOperation, etag: str) -> dict[str, str]:
    """The checksum of the object that an upload has become, while it is the current one."""
    try:
        file, _ = exchange.node.database.read(find_with_sources, operation.bucket, operation.key)
    except FileMissing:
        return {}
    return checksums_of(file) if file.etag == etag else {}


def _find_completed(exchange: S3Exchange, operation: operations.UploadOperation) -> CompletedUpload | None:
    """The upload of a request, if it was completed."""
    if not _UPLOAD_ID.fullmatch(operation.upload_id):
        return None
    found = exchange.node.database.read(find_completed_upload, operation.upload_id)
    is_it = found is not None and (found.bucket, found.key) == (operation.bucket, operation.key)
    return found if is_it else None


def _check_same(completed: CompletedUpload, wanted: Sequence[CompletedPart]) -> None:
    """Raise S3Error: NoSuchUpload unless an upload was completed with these parts."""
    try:
        etag = etag_of_upload([bytes.fromhex(part.etag) for part in wanted])
    except ValueError:
        raise S3Error(S3Code.NoSuchUpload) from None
    if etag != completed.etag:
        raise S3Error(S3Code.NoSuchUpload)


async def _own_disk(exchange: S3Exchange, upload: Upload) -> LocalDisk | None:
    """The disk of an upload, if it is of this node; else the request is relayed to its node, and answered by that.

    Raises:
        DiskUnavailable: it is neither here, nor can its node be reached.
    """
    disk = exchange.node.disks.find(upload.disk_id)
    if disk is not None:
        return disk
    row: DiskRow | None = None
    with suppress(DiskNotFound):
        row = await to_thread(exchange.node.database.read, get_disk, upload.disk_id)
    if row is None or row.url is None or row.node == exchange.node.name:
        raise DiskUnavailable
    await relay(exchange, row.url)
    return None


# ---------------------------------------------------------------- completion


def _checked_parts(
    exchange: S3Exchange, operation: operations.CompleteMultipartUpload, wanted: Sequence[CompletedPart]
) -> list[UploadedPart]:
    """The parts that the client names, if they are as it names them.

    Raises S3Error: InvalidPart, EntityTooSmall, EntityTooLarge, and InvalidRequest for another size than announced.
    """
    stored = {part.number: part for part in exchange.node.database.read(list_parts, operation.upload_id)}
    parts: list[UploadedPart] = []
    for one in wanted:
        part = stored.get(one.number)
        if part is None or part.etag != one.etag or not _has_checksum(part, one.checksum):
            raise S3Error(S3Code.InvalidPart, PartNumber=str(one.number))
        parts.append(part)
    for part in parts[:-1]:
        if part.size < MIN_PART:
            raise S3Error(
                S3Code.EntityTooSmall,
                PartNumber=str(part.number),
                ProposedSize=str(part.size),
                MinSizeAllowed=str(MIN_PART),
            )
    size = sum(part.size for part in parts)
    if size > MAX_OBJECT:
        raise S3Error(S3Code.EntityTooLarge, ProposedSize=str(size), MaxSizeAllowed=str(MAX_OBJECT))
    if operation.object_size is not None and operation.object_size != size:
        raise S3Error(S3Code.InvalidRequest, f"the parts have {size} bytes, announced were {operation.object_size}")
    return parts


def _has_checksum(part: UploadedPart, checksum: Checksum | None) -> bool:
    """Whether a part has the checksum that the client names; one that was sent without any has none to compare."""
    if checksum is None or part.checksum is None:
        return True
    return part.checksum == f"{checksum.algorithm}:{checksum.value}"


def _complete(
    exchange: S3Exchange,
    operation: operations.CompleteMultipartUpload,
    upload: Upload,
    disk: LocalDisk,
    parts: Sequence[UploadedPart],
) -> Steps[StoredFile]:
    kind = _wanted_kind(operation, upload)
    composite = _composite(kind.algorithm, parts) if kind is not None and kind.is_of_parts else None
    running = new_checksum(kind.algorithm) if kind is not None and composite is None else None
    receiving = uploads.assemble(exchange.node, disk, parts, None if running is None else running.update)
    with receiving:
        found = composite if running is None else encoded_digest(running.digest())
        if operation.checksum is not None and found is not None and operation.checksum.value != found:
            name = operation.checksum.algorithm.upper()
            raise S3Error(S3Code.BadDigest, f"the object does not have the {name} that the request names")
        kept: dict[str, Any] = {"content_type": upload.content_type, "metadata": upload.metadata}
        sums = {} if kind is None or found is None else {f"{CHECKSUM_PREFIX}{kind.algorithm}": found}
        headers = {name: value for name, value in upload.headers.items() if not name.startswith(CHECKSUM_PREFIX)}
        received = Received(
            bucket=upload.bucket,
            key=upload.key,
            class_name=upload.class_name,
            etag=etag_of_upload([bytes.fromhex(part.etag) for part in parts]),
            headers={**headers, **sums, PARTS: part_sizes_as_text(part.size for part in parts)},
            condition=condition_of(operation.conditions),
            auditor=exchange.auditor,
            **kept,
        )
        return (yield from uploads.complete(disk, upload.id, receiving, received))


def _wanted_kind(operation: operations.CompleteMultipartUpload, upload: Upload) -> ChecksumKind | None:
    """The checksum that the object gets: for which the upload was begun, else which the client names."""
    kind, named = _checksum_kind_of(upload), operation.checksum
    if kind is None:
        return None if named is None else ChecksumKind(named.algorithm, is_of_parts="-" in named.value)
    if named is not None and named.algorithm != kind.algorithm:
        raise S3Error(S3Code.InvalidRequest, f"the upload was begun for the checksum {kind.algorithm.upper()}")
    if operation.checksum_type not in (None, kind.headers[CHECKSUM_TYPE]):
        raise S3Error(
            S3Code.InvalidRequest, f"the upload was begun for a checksum of the type {kind.headers[CHECKSUM_TYPE]}"
        )
    return kind


def _composite(algorithm: str, parts: Sequence[UploadedPart]) -> str:
    """The checksum of the parts' checksums, with their number behind a hyphen."""
    running = new_checksum(algorithm)
    for part in parts:
        text = _checksums_of_part(part).get(algorithm)
        if text is None:
            raise S3Error(S3Code.InvalidRequest, f"part {part.number} was uploaded without {algorithm.upper()}")
        running.update(decoded_digest(text, CHECKSUM_SIZES[algorithm]))
    return f"{encoded_digest(running.digest())}-{len(parts)}"
