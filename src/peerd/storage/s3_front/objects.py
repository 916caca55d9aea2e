"""Objects: put, get, copied and deleted."""

from __future__ import annotations

import os
from asyncio import to_thread
from collections.abc import Callable
from hashlib import md5
from typing import Any, Final

from sqlalchemy.engine import Connection

from peerd.domain.file_errors import FileClassNotFound, FileConditionFailed
from peerd.domain.files import StoredFile
from peerd.storage.auditing import REMOVE, state_of
from peerd.storage.awaiting import Steps
from peerd.storage.disk.open_disk import LocalRange
from peerd.storage.node import StorageNode
from peerd.storage.receiving import Received, Receiving
from peerd.storage.s3.checksums import (
    CHECKSUM_PREFIX,
    checksum_elements,
    checksum_headers,
    encoded_digest,
    new_checksum,
)
from peerd.storage.s3.errors import S3Code, S3Error
from peerd.storage.s3.requests import CopySource, ObjectHeaders, ObjectReading
from peerd.storage.s3_front.exchange import S3Exchange, S3Response, document_response
from peerd.storage.s3_front.stored_objects import (
    OF_AWS,
    STANDARD,
    checksums_of,
    condition_of,
    etag_of,
    kept_with,
    object_response,
    quoted_etag,
)
from peerd.storage.server.http_io import send_pieces
from peerd.storage.serving import FileReading, FoundContent, find_to_serve
from peerd.store.files.buckets import Bucket, get_bucket
from peerd.store.files.classes import get_class
from peerd.store.files.listing import find_with_sources
from peerd.store.files.versions import delete_file

MAX_SIZE: Final = 5 * 1024**3
"""Bytes of one PutObject, CopyObject or part, as in S3; larger objects are uploaded in parts."""
BLOCK: Final = 1024 * 1024


async def put_object(exchange: S3Exchange) -> None:
    """Store the body, when its signature, length and digests are verified."""
    node, request = exchange.node, exchange.request
    condition, storage_class = condition_of(request.conditions), request.storage_class
    object_headers = request.object_headers
    reader = exchange.content_reader()
    check_size(reader.length)
    class_name = await to_thread(node.database.read, find_class, request.bucket, storage_class)
    receiving = await to_thread(Receiving.begin, node, reader.length)
    try:
        digests = await exchange.receive(reader, receiving.write)
        received = Received(
            bucket=request.bucket,
            key=request.key,
            class_name=class_name,
            etag=digests.md5.hex(),
            condition=condition,
            auditor=exchange.auditor,
            **kept_with(object_headers, digests.checksums),
        )
        file = await node.awaited.carry_out(receiving.finish(received))
    finally:
        await to_thread(receiving.close)
    headers = {"etag": quoted_etag(etag_of(file)), **checksum_headers(digests.checksums)}
    await exchange.send(S3Response(headers=headers))


async def get_object(exchange: S3Exchange) -> None:
    """Send an object, a range of it, or its headers."""
    wanted, is_head = exchange.request.reading, exchange.request.http.method == "HEAD"
    answer, reading = await to_thread(_answer_to_get, exchange, wanted, is_head=is_head)
    headers: dict[str, str | int] = {
        "x-amz-request-id": exchange.request_id,
        "x-content-type-options": "nosniff",
        **answer.headers,
    }
    if reading is None or answer.content is None:
        await exchange.response.begin(answer.status, headers)
        await exchange.response.end()
        return
    try:
        pieces = reading.pieces(*answer.content)
        await send_pieces(pieces, answer.status, headers, exchange.incoming, exchange.response)
    finally:
        reading.close()


def _answer_to_get(
    exchange: S3Exchange, wanted: ObjectReading, *, is_head: bool
) -> tuple[S3Response, FileReading | None]:
    """What a GET is answered with, and the file that is read for its body, in one visit to the database."""
    node, request = exchange.node, exchange.request

    def find(connection: Connection) -> tuple[Bucket, StoredFile, FoundContent | None]:
        found = find_to_serve(connection, request.bucket, request.key, is_head=is_head)
        return get_bucket(connection, request.bucket), *found

    bucket, file, content = node.database.read(find)
    answer = object_response(wanted, file, bucket)
    if content is None or answer.content is None:
        return answer, None
    return answer, FileReading.of_found(node, file, *content)


async def copy_object(exchange: S3Exchange) -> None:
    """Store a new version with the content of another file, which is verified on the way."""
    node, request = exchange.node, exchange.request
    condition, storage_class = condition_of(request.conditions), request.storage_class
    replaced, algorithm = request.replaced_headers, request.checksum_algorithm
    await exchange.document(0)
    class_name = await to_thread(node.database.read, find_class, request.bucket, storage_class)
    source = await to_thread(find_source, node, request.copy_source)
    check_size(source.size)

    def copy() -> Steps[S3Response]:
        with Receiving.begin(node, source.size) as receiving:
            etag, sums = copy_content(node, source, 0, source.size, receiving.write, algorithm)
            received = Received(
                bucket=request.bucket,
                key=request.key,
                class_name=class_name,
                etag=etag,
                blake3=source.blake3,
                condition=condition,
                auditor=exchange.auditor,
                arguments={"source": f"{source.bucket}/{source.key}"},
                **_kept_with_copy(source, replaced, sums),
            )
            file = yield from receiving.finish(received)
        etag, checksums = quoted_etag(etag_of(file)), checksum_elements(checksums_of(file))
        return document_response("CopyObjectResult", [("LastModified", file.created_at), ("ETag", etag), *checksums])

    await exchange.send_when_done(copy())


async def delete_object(exchange: S3Exchange) -> None:
    """Delete an object; it is no error if there is none, also if it should have a certain ETag."""
    node, request = exchange.node, exchange.request
    request.check_version()
    condition = condition_of(request.conditions)

    def delete(connection: Connection) -> StoredFile | None:
        deleted = delete_file(connection, get_bucket(connection, request.bucket), request.key, condition)
        if deleted is not None:
            node.check(connection, [deleted.id], view)
            exchange.auditor.write(connection, REMOVE, f"{deleted.bucket}/{deleted.key}", state_of(deleted), None)
        return deleted

    view = await to_thread(node.view)
    try:
        if await to_thread(node.database.run, delete) is not None:
            node.ring()
    except FileConditionFailed as error:
        if not error.is_missing:
            raise
    await exchange.send(S3Response(status=204))


def check_size(size: int) -> None:
    """Raise S3Error: EntityTooLarge for what must be uploaded in parts."""
    if size > MAX_SIZE:
        raise S3Error(S3Code.EntityTooLarge, ProposedSize=str(size), MaxSizeAllowed=str(MAX_SIZE))


def find_source(node: StorageNode, source: CopySource) -> StoredFile:
    """The file that is to be copied. Raises BucketNotFound, FileMissing, and S3Error: PreconditionFailed."""
    file, _ = node.database.read(find_with_sources, source.bucket, source.key)
    if failure := source.conditions.failure(etag_of(file), file.created_at):
        raise S3Error(S3Code.PreconditionFailed, **failure.details)
    return file


def copy_content(
    node: StorageNode,
    file: StoredFile,
    start: int,
    stop: int,
    write: Callable[[bytes], object],
    algorithm: str | None = None,
) -> tuple[str, dict[str, str]]:
    """Write bytes of a file, each chunk verified; return their ETag, and their checksum if there is an ``algorithm``.

    Raises NoSourceLeft, and what ``write`` raises.
    """
    digest, sums = md5(usedforsecurity=False), {name: new_checksum(name) for name in [algorithm] if name is not None}

    def take(data: bytes) -> None:
        digest.update(data)
        for running in sums.values():
            running.update(data)
        write(data)

    with FileReading.begin(node, file) as reading:
        for piece in reading.pieces(start, stop):
            if not isinstance(piece, LocalRange):
                take(piece)
                continue
            end = piece.offset + piece.count
            for position in range(piece.offset, end, BLOCK):
                take(os.pread(piece.fd, min(BLOCK, end - position), position))
    return digest.hexdigest(), {name: encoded_digest(one.digest()) for name, one in sums.items()}


def find_class(connection: Connection, bucket: str, storage_class: str | None) -> str:
    """The name of the class that a new file gets. Raises BucketNotFound and FileClassNotFound."""
    of_bucket = get_bucket(connection, bucket).class_name
    if storage_class is None or storage_class == STANDARD:
        return of_bucket
    try:
        return get_class(connection, storage_class.lower()).name
    except FileClassNotFound:
        if storage_class in OF_AWS:
            return of_bucket
        raise


def _kept_with_copy(source: StoredFile, replaced: ObjectHeaders | None, computed: dict[str, str]) -> dict[str, Any]:
    """What is kept with a copy: of the source, or as given; a checksum of the source's bytes remains true."""
    checksums = computed or {name: value for name, value in checksums_of(source).items() if "-" not in value}
    if replaced is not None:
        return kept_with(replaced, checksums)
    headers = {name: value for name, value in source.headers.items() if not name.startswith("x-amz-")}
    headers |= {f"{CHECKSUM_PREFIX}{name}": value for name, value in checksums.items()}
    return {"content_type": source.content_type, "metadata": source.metadata, "headers": headers}
