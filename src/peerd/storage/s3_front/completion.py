"""The completion of an upload in parts."""

from __future__ import annotations

import hashlib
from asyncio import to_thread
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from peerd.domain.file_errors import FileConditionFailed, FileMissing, UploadGone
from peerd.domain.files import StoredFile
from peerd.storage import uploads
from peerd.storage.awaiting import Steps
from peerd.storage.local_disks import LocalDisk
from peerd.storage.receiving import Received
from peerd.storage.s3.checksums import (
    CHECKSUM_PREFIX,
    CHECKSUM_SIZES,
    CHECKSUM_TYPE,
    Checksum,
    ChecksumKind,
    checksum_elements,
    decoded_digest,
    encoded_digest,
    new_checksum,
)
from peerd.storage.s3.documents import MAX_PARTS_DOCUMENT, CompletedPart, completed_parts
from peerd.storage.s3.errors import S3Code, S3Error
from peerd.storage.s3_front.exchange import S3Exchange, S3Response, document_response
from peerd.storage.s3_front.stored_objects import (
    PARTS,
    checksums_of,
    condition_of,
    etag_of,
    part_sizes_as_text,
    quoted_etag,
)
from peerd.storage.s3_front.uploads import MIN_PART, checksum_kind_of, checksums_of_part, find_upload_of, own_disk
from peerd.store.files.listing import find_with_sources
from peerd.store.files.uploads import CompletedUpload, Upload, UploadedPart, find_completed_upload, list_parts
from peerd.store.files.versions import Condition

MAX_OBJECT: Final = 5 * 1024**4


class _Wanted(NamedTuple):
    """What a client says of the object that it wants."""

    condition: Condition
    checksum: Checksum | None
    checksum_type: str | None
    size: int | None


async def complete_upload(exchange: S3Exchange) -> None:
    """Make an object of the parts that the body names.

    A client that has lost the response completes the upload again, with the same parts: it gets the same response, also
    while the first completion still runs, and after the object was replaced or deleted.
    """
    request = exchange.request
    condition, checksum = condition_of(request.conditions), request.object_checksum
    wanted = _Wanted(condition, checksum, request.checksum_type, request.object_size)
    upload = await to_thread(_find, exchange)
    if isinstance(upload, CompletedUpload):
        await exchange.send(await to_thread(_answer_again, exchange, upload, await _named_parts(exchange)))
        return
    disk = await own_disk(exchange, upload)
    if disk is not None:
        named = await _named_parts(exchange)
        await exchange.send_when_done(_complete(exchange, wanted, upload, disk, named))


def _find(exchange: S3Exchange) -> Upload | CompletedUpload:
    """The upload of a request, also one that was completed. Raises S3Error: NoSuchUpload."""
    if completed := _find_completed(exchange):
        return completed
    try:
        return find_upload_of(exchange)
    except S3Error:
        completed = _find_completed(exchange)  # by another request, since it was looked for
        if completed is None:
            raise
        return completed


def _find_completed(exchange: S3Exchange) -> CompletedUpload | None:
    """The upload of a request, if it was completed."""
    request, upload_id = exchange.request, exchange.request.upload_id
    found = exchange.node.database.read(find_completed_upload, upload_id)
    is_it = found is not None and (found.bucket, found.key) == (request.bucket, request.key)
    return found if is_it else None


async def _named_parts(exchange: S3Exchange) -> tuple[CompletedPart, ...]:
    return completed_parts(await exchange.document(MAX_PARTS_DOCUMENT, has_checksum_headers=False))


def _complete(
    exchange: S3Exchange, wanted: _Wanted, upload: Upload, disk: LocalDisk, named: Sequence[CompletedPart]
) -> Steps[S3Response]:
    try:
        parts = _checked_parts(exchange, upload.id, wanted.size, named)
        file = yield from _make_object(exchange, wanted, upload, disk, parts)
    except (UploadGone, FileConditionFailed, S3Error):
        found = _find_completed(exchange)
        if found is None:
            raise
        return _answer_again(exchange, found, named)  # another request has completed it meanwhile
    return _answer(exchange, etag_of(file), checksums_of(file))


def _answer_again(exchange: S3Exchange, completed: CompletedUpload, named: Sequence[CompletedPart]) -> S3Response:
    """The response of an earlier completion, with the checksum of the object while that is the current one.

    Raises S3Error: NoSuchUpload unless the upload was completed with these parts.
    """
    try:
        etag = etag_of_upload([part.etag for part in named])
    except ValueError:
        raise S3Error(S3Code.NoSuchUpload) from None
    if etag != completed.etag:
        raise S3Error(S3Code.NoSuchUpload)
    sums: dict[str, str] = {}
    with suppress(FileMissing):
        file, _ = exchange.node.database.read(find_with_sources, completed.bucket, completed.key)
        sums = checksums_of(file) if file.etag == etag else {}
    return _answer(exchange, etag, sums)


def _answer(exchange: S3Exchange, etag: str, checksums: Mapping[str, str]) -> S3Response:
    request = exchange.request
    scheme, path = exchange.incoming.scope["scheme"], request.http.path.decode("utf-8", "replace")
    content = [
        ("Location", f"{scheme}://{request.http.header('host') or ''}{path}"),
        ("Bucket", request.bucket),
        ("Key", request.key),
        ("ETag", quoted_etag(etag)),
        *checksum_elements(checksums),
    ]
    return document_response("CompleteMultipartUploadResult", content)


def _checked_parts(
    exchange: S3Exchange, upload_id: str, announced: int | None, named: Sequence[CompletedPart]
) -> list[UploadedPart]:
    """The parts that the client names, if they are as it names them.

    Raises S3Error: InvalidPart, EntityTooSmall, EntityTooLarge, and InvalidRequest for another size than announced.
    """
    stored = {part.number: part for part in exchange.node.database.read(list_parts, upload_id)}
    parts: list[UploadedPart] = []
    for one in named:
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
    if announced is not None and announced != size:
        raise S3Error(S3Code.InvalidRequest, f"the parts have {size} bytes, announced were {announced}")
    return parts


def _has_checksum(part: UploadedPart, checksum: Checksum | None) -> bool:
    """Whether a part has the checksum that the client names; one that was sent without any has none to compare."""
    if checksum is None or part.checksum is None:
        return True
    return part.checksum == f"{checksum.algorithm}:{checksum.value}"


def _make_object(
    exchange: S3Exchange, wanted: _Wanted, upload: Upload, disk: LocalDisk, parts: Sequence[UploadedPart]
) -> Steps[StoredFile]:
    kind = _wanted_kind(wanted, upload)
    composite = _composite(kind.algorithm, parts) if kind is not None and kind.is_of_parts else None
    running = new_checksum(kind.algorithm) if kind is not None and composite is None else None
    receiving = uploads.assemble(exchange.node, disk, parts, None if running is None else running.update)
    with receiving:
        found = composite if running is None else encoded_digest(running.digest())
        if wanted.checksum is not None and found is not None and wanted.checksum.value != found:
            name = wanted.checksum.algorithm.upper()
            raise S3Error(S3Code.BadDigest, f"the object does not have the {name} that the request names")
        sums = {} if kind is None or found is None else {f"{CHECKSUM_PREFIX}{kind.algorithm}": found}
        headers = {name: value for name, value in upload.headers.items() if not name.startswith(CHECKSUM_PREFIX)}
        received = Received(
            bucket=upload.bucket,
            key=upload.key,
            class_name=upload.class_name,
            content_type=upload.content_type,
            metadata=upload.metadata,
            etag=etag_of_upload([part.etag for part in parts]),
            headers={**headers, **sums, PARTS: part_sizes_as_text(part.size for part in parts)},
            condition=wanted.condition,
            auditor=exchange.auditor,
        )
        return (yield from uploads.complete(disk, upload.id, receiving, received))


def _wanted_kind(wanted: _Wanted, upload: Upload) -> ChecksumKind | None:
    """The checksum that the object gets: for which the upload was begun, else which the client names."""
    kind, named = checksum_kind_of(upload), wanted.checksum
    if kind is None:
        return None if named is None else ChecksumKind(named.algorithm, is_of_parts="-" in named.value)
    if named is not None and named.algorithm != kind.algorithm:
        raise S3Error(S3Code.InvalidRequest, f"the upload was begun for the checksum {kind.algorithm.upper()}")
    if wanted.checksum_type not in (None, kind.headers[CHECKSUM_TYPE]):
        raise S3Error(
            S3Code.InvalidRequest, f"the upload was begun for a checksum of the type {kind.headers[CHECKSUM_TYPE]}"
        )
    return kind


def _composite(algorithm: str, parts: Sequence[UploadedPart]) -> str:
    """The checksum of the parts' checksums, with their number behind a hyphen."""
    running = new_checksum(algorithm)
    for part in parts:
        text = checksums_of_part(part).get(algorithm)
        if text is None:
            raise S3Error(S3Code.InvalidRequest, f"part {part.number} was uploaded without {algorithm.upper()}")
        running.update(decoded_digest(text, CHECKSUM_SIZES[algorithm]))
    return f"{encoded_digest(running.digest())}-{len(parts)}"


def etag_of_upload(etags: Sequence[str]) -> str:
    """The ETag of an object that was uploaded in parts: the MD5 of their MD5s, and how many they are.

    Raises ValueError if one of them is no hex text.

    >>> etag_of_upload(["d41d8cd98f00b204e9800998ecf8427e"])
    '59adb24ef3cdbe0297f05b395827453f-1'
    """
    md5s = b"".join(map(bytes.fromhex, etags))
    return f"{hashlib.md5(md5s, usedforsecurity=False).hexdigest()}-{len(etags)}"
