"""Uploads in parts. What needs the disk of an upload is done by the node that has it: others relay the request."""

from __future__ import annotations

import uuid
from asyncio import to_thread
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from sqlalchemy.engine import Connection

from peerd.domain.file_errors import DiskNotFound, UploadGone
from peerd.storage import uploads
from peerd.storage.awaiting import Steps
from peerd.storage.local_disks import LocalDisk
from peerd.storage.receiving import NoDiskHasRoom
from peerd.storage.s3.checksums import (
    CHECKSUM_ALGORITHM,
    CHECKSUM_TYPE,
    ChecksumKind,
    checksum_elements,
    checksum_headers,
)
from peerd.storage.s3.documents import XmlChild
from peerd.storage.s3.errors import S3Code, S3Error
from peerd.storage.s3.requests import Listing
from peerd.storage.s3_front.buckets import prefix_elements
from peerd.storage.s3_front.exchange import S3Exchange, S3Response, document_response
from peerd.storage.s3_front.objects import check_size, copy_content, find_class, find_source
from peerd.storage.s3_front.relaying import DiskUnavailable, relay
from peerd.storage.s3_front.stored_objects import OWNER, STANDARD, kept_with, quoted_etag, storage_class_of
from peerd.storage.uploads import NewPart
from peerd.store.files.buckets import Bucket, get_bucket
from peerd.store.files.disks import DiskRow, get_disk
from peerd.store.files.listing import UploadList, list_uploads
from peerd.store.files.uploads import NewUpload, Upload, UploadedPart, enter_upload, find_upload, list_parts

MIN_PART: Final = 5 * 1024**2
"""Bytes of each part but the last one, as in S3."""


async def create_upload(exchange: S3Exchange) -> None:
    """Begin an upload on the disk of this node that has the most room."""
    node, request = exchange.node, exchange.request
    kept, storage_class, kind = kept_with(request.object_headers), request.storage_class, request.checksum_kind
    await exchange.document(0)
    kind_headers = {} if kind is None else kind.headers
    kept["headers"] |= kind_headers
    for_new = await to_thread(node.disks.for_new, MIN_PART)
    if not for_new:
        raise NoDiskHasRoom(node.name, MIN_PART)
    upload_id = uuid.uuid4().hex

    def begin(connection: Connection) -> None:
        class_name = find_class(connection, request.bucket, storage_class)
        new = NewUpload(
            id=upload_id,
            key=request.key,
            disk_id=for_new[0].number,
            class_name=class_name,
            created_by=exchange.key.id,
            **kept,
        )
        enter_upload(connection, get_bucket(connection, request.bucket), new)

    await to_thread(node.database.run, begin)
    named = [("Bucket", request.bucket), ("Key", request.key), ("UploadId", upload_id)]
    await exchange.send(document_response("InitiateMultipartUploadResult", named, kind_headers))


async def upload_part(exchange: S3Exchange) -> None:
    """Store the body as a part, when its signature, length and digests are verified."""
    number = exchange.request.part_number
    upload = await to_thread(find_upload_of, exchange)
    disk = await own_disk(exchange, upload)
    if disk is None:
        return
    kind = checksum_kind_of(upload)
    node, reader = exchange.node, exchange.content_reader(None if kind is None else kind.algorithm)
    check_size(reader.length)
    bucket = await to_thread(node.database.read, get_bucket, upload.bucket)
    receiving = await to_thread(uploads.begin_part, node, bucket, disk, reader.length)
    try:
        digests = await exchange.receive(reader, receiving.write)
        new = _new_part(number, digests.md5.hex(), digests.checksums)
        await to_thread(uploads.store_part, node, disk, upload.id, receiving, new)
    finally:
        await to_thread(receiving.close)
    headers = {"etag": quoted_etag(new.etag), **checksum_headers(digests.checksums)}
    await exchange.send(S3Response(headers=headers))


async def copy_part(exchange: S3Exchange) -> None:
    """Store an object, or a range of it, as a part."""
    node, request = exchange.node, exchange.request
    number, wanted = request.part_number, request.source_range
    upload = await to_thread(find_upload_of, exchange)
    disk = await own_disk(exchange, upload)
    if disk is None:
        return
    await exchange.document(0)
    source = await to_thread(find_source, node, request.copy_source)
    start, stop = (0, source.size) if wanted is None else wanted.within(source.size)
    if wanted is not None and wanted.last != stop - 1:
        raise S3Error(S3Code.InvalidRange, ActualObjectSize=str(source.size))
    check_size(stop - start)
    bucket = await to_thread(node.database.read, get_bucket, upload.bucket)
    kind = checksum_kind_of(upload)
    algorithm = None if kind is None else kind.algorithm

    def copy() -> Steps[S3Response]:
        yield from ()  # no copies are awaited
        with uploads.begin_part(node, bucket, disk, stop - start) as receiving:
            etag, sums = copy_content(node, source, start, stop, receiving.write, algorithm)
            uploads.store_part(node, disk, upload.id, receiving, _new_part(number, etag, sums))
        found = node.database.read(list_parts, upload.id, after=number - 1, limit=1)
        if not found:
            raise UploadGone(upload.id)
        etag, checksums = quoted_etag(etag), checksum_elements(sums, has_type=False)
        return document_response("CopyPartResult", [("LastModified", found[0].created_at), ("ETag", etag), *checksums])

    await exchange.send_when_done(copy())


async def abort_upload(exchange: S3Exchange) -> None:
    """End an upload, and remove its parts; if the node of its disk is away, they are swept when it comes back."""
    upload = await to_thread(find_upload_of, exchange)
    disk: LocalDisk | None = None
    with suppress(DiskUnavailable):
        disk = await own_disk(exchange, upload)
        if disk is None:
            return
    await to_thread(uploads.abort, exchange.node, upload.id, disk)
    await exchange.send(S3Response(status=204))


async def send_parts(exchange: S3Exchange) -> None:
    """Send a page of the parts of an upload."""
    listing, marker = exchange.request.listing("max-parts"), exchange.request.number("part-number-marker")
    upload = await to_thread(find_upload_of, exchange)
    read = exchange.node.database.read
    found = await to_thread(read, list_parts, upload.id, after=marker, limit=listing.limit + 1)
    parts = found[: listing.limit]
    content: list[XmlChild] = [
        ("Bucket", upload.bucket),
        ("Key", listing.encoded(upload.key)),
        ("EncodingType", listing.encoding),
        ("UploadId", upload.id),
        ("Initiator", OWNER),
        ("Owner", OWNER),
        *_kind_elements(upload),
        ("StorageClass", STANDARD),
        ("PartNumberMarker", marker),
        ("NextPartNumberMarker", parts[-1].number if parts else marker),
        ("MaxParts", listing.limit),
        ("IsTruncated", len(found) > listing.limit),
        *map(_part_element, parts),
    ]
    await exchange.send(document_response("ListPartsResult", content))


def _part_element(part: UploadedPart) -> XmlChild:
    return "Part", [
        ("PartNumber", part.number),
        ("LastModified", part.created_at),
        ("ETag", quoted_etag(part.etag)),
        ("Size", part.size),
        *checksum_elements(checksums_of_part(part), has_type=False),
    ]


async def send_uploads(exchange: S3Exchange) -> None:
    """Send a page of the uploads of a bucket that have not ended."""
    request = exchange.request
    listing, marker = request.listing("max-uploads"), (request.text("key-marker"), request.text("upload-id-marker"))
    bucket, page = await to_thread(_find_page, exchange, listing, marker)
    next_key, next_upload = page.next_after or (None, None)
    content: list[XmlChild] = [
        ("Bucket", bucket.name),
        ("KeyMarker", listing.encoded(marker[0])),
        ("UploadIdMarker", marker[1]),
        ("NextKeyMarker", listing.encoded(next_key)),
        ("NextUploadIdMarker", next_upload),
        ("Prefix", listing.encoded(listing.prefix)),
        ("Delimiter", listing.encoded(listing.delimiter or None)),
        ("EncodingType", listing.encoding),
        ("MaxUploads", listing.limit),
        ("IsTruncated", page.next_after is not None),
        *(_upload_element(listing, bucket, upload) for upload in page.uploads),
        *prefix_elements(listing, page.prefixes),
    ]
    await exchange.send(document_response("ListMultipartUploadsResult", content))


def _find_page(exchange: S3Exchange, listing: Listing, after: tuple[str, str]) -> tuple[Bucket, UploadList]:
    """The bucket, and the uploads of it that follow a key and an upload of it."""
    key, upload_id = after

    def read(connection: Connection) -> tuple[Bucket, UploadList]:
        bucket = get_bucket(connection, exchange.request.bucket)
        return bucket, list_uploads(
            connection,
            bucket,
            prefix=listing.prefix,
            after=(key, upload_id or None),
            delimiter=listing.delimiter,
            limit=listing.limit,
        )

    return exchange.node.database.read(read)


def _upload_element(listing: Listing, bucket: Bucket, upload: Upload) -> XmlChild:
    return "Upload", [
        ("Key", listing.encoded(upload.key)),
        ("UploadId", upload.id),
        ("Initiator", OWNER),
        ("Owner", OWNER),
        ("StorageClass", storage_class_of(upload.class_name, bucket)),
        ("Initiated", upload.created_at),
        *_kind_elements(upload),
    ]


def find_upload_of(exchange: S3Exchange) -> Upload:
    """The upload of a request. Raises S3Error: NoSuchUpload, also for one of another key."""
    request, upload_id = exchange.request, exchange.request.upload_id
    upload = exchange.node.database.read(find_upload, upload_id)
    if upload is None or (upload.bucket, upload.key) != (request.bucket, request.key):
        raise S3Error(S3Code.NoSuchUpload)
    return upload


def checksum_kind_of(upload: Upload) -> ChecksumKind | None:
    """For which checksum an upload was begun."""
    algorithm = upload.headers.get(CHECKSUM_ALGORITHM)
    if algorithm is None:
        return None
    return ChecksumKind(algorithm.lower(), is_of_parts=upload.headers[CHECKSUM_TYPE] == "COMPOSITE")


def _kind_elements(upload: Upload) -> list[XmlChild]:
    return [
        ("ChecksumAlgorithm", upload.headers.get(CHECKSUM_ALGORITHM)),
        ("ChecksumType", upload.headers.get(CHECKSUM_TYPE)),
    ]


def _new_part(number: int, etag: str, checksums: Mapping[str, str]) -> NewPart:
    checksum = next((f"{name}:{value}" for name, value in checksums.items()), None)
    return NewPart(number=number, etag=etag, checksum=checksum)


def checksums_of_part(part: UploadedPart) -> dict[str, str]:
    """The checksum of a part, by its algorithm, if it has one."""
    return dict([part.checksum.split(":", 1)]) if part.checksum is not None else {}


async def own_disk(exchange: S3Exchange, upload: Upload) -> LocalDisk | None:
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
