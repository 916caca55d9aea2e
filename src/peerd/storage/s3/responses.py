"""The responses of S3 as values: status, headers and, where there is one, a small body.

The content of an object is no part of them: `object_response` says which bytes of it follow.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Final

import msgspec

from peerd.storage.s3.errors import S3Code, S3Error
from peerd.storage.s3.http_request import percent_encoded
from peerd.storage.s3.operations import (
    CHECKSUM_ALGORITHM,
    CHECKSUM_TYPE,
    ChecksumKind,
    CompleteMultipartUpload,
    CreateMultipartUpload,
    GetObject,
    HeadObject,
    ListBuckets,
    Listing,
    ListMultipartUploads,
    ListObjects,
    ListObjectsV2,
    ListObjectVersions,
    ListParts,
    ObjectHeaders,
)
from peerd.storage.s3.requests import token_after
from peerd.storage.s3.xml import readable, xml_document, xml_element, xml_escaped, xml_text
from peerd.storage.server.ranges import range_still_holds

DEFAULT_REGION: Final = "us-east-1"
"""The region whose location constraint is empty."""
DEFAULT_TYPE: Final = "binary/octet-stream"
NULL_VERSION: Final = "null"
"""The version of an object in a bucket without versions."""
_OF_NOT_MODIFIED: Final = ("etag", "last-modified", "cache-control", "expires")
"""Headers by which a cache renews what it has (RFC 9110, 15.4.5)."""


class S3Response(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent before the content of an object, or instead of one. Headers have names in lower case."""

    status: int = 200
    headers: Mapping[str, str] = {}
    body: bytes = b""
    content: tuple[int, int] | None = None
    """The first byte of the object that follows, and the one behind the last; None if none follow."""


class S3Owner(msgspec.Struct, frozen=True):
    """A user, as lists show it."""

    id: str
    name: str


class BucketEntry(msgspec.Struct, frozen=True):
    """A bucket of a list."""

    name: str
    created: datetime


class ObjectEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An object of a list; the ETag is without quotes."""

    key: str
    size: int
    etag: str
    modified: datetime
    storage_class: str = "STANDARD"


class UploadEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An upload in parts that has not ended."""

    key: str
    upload_id: str
    begun: datetime
    storage_class: str = "STANDARD"
    checksum_kind: ChecksumKind | None = None


class PartEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an upload."""

    number: int
    size: int
    etag: str
    modified: datetime
    checksums: Mapping[str, str] = {}


class ListPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a list of keys, both parts in the order of their UTF-8. ``next_after``: what the next page follows, a
    key or a common prefix; None if there is no next page.
    """

    objects: Sequence[ObjectEntry] = ()
    prefixes: Sequence[str] = ()
    next_after: str | None = None


class StoredObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object as its headers show it; the ETag is without quotes. ``part_sizes``: of the parts in which it was
    uploaded; empty for one that was put at once.
    """

    size: int
    etag: str
    modified: datetime
    part_sizes: Sequence[int] = ()
    object_headers: ObjectHeaders = ObjectHeaders()
    checksums: Mapping[str, str] = {}
    storage_class: str = "STANDARD"


# ---------------------------------------------------------------- ETags and times


def etag_of_part(md5: bytes) -> str:
    """The ETag of an object that was put at once, or of a part: its MD5.

    >>> etag_of_part(hashlib.md5(b"").digest())
    'd41d8cd98f00b204e9800998ecf8427e'
    """
    return md5.hex()


def etag_of_upload(md5s: Sequence[bytes]) -> str:
    """The ETag of an object that was uploaded in parts: the MD5 of their MD5s, and how many they are.

    >>> etag_of_upload([hashlib.md5(b"").digest()])
    '59adb24ef3cdbe0297f05b395827453f-1'
    """
    return f"{hashlib.md5(b''.join(md5s), usedforsecurity=False).hexdigest()}-{len(md5s)}"


def quoted_etag(etag: str) -> str:
    """An ETag as HTTP and XML have it."""
    return f'"{etag}"'


def iso_time(time: datetime) -> str:
    """A time as XML has it.

    >>> iso_time(datetime(2026, 11, 26, 9, 0, 0, 123456, UTC))
    '2026-11-26T09:00:00.123Z'
    """
    return time.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def http_time(time: datetime) -> str:
    """A time as headers have it."""
    return format_datetime(time.astimezone(UTC), usegmt=True)


# ---------------------------------------------------------------- errors, and responses without a document


def error_response(error: S3Error, *, resource: str = "", request_id: str = "", is_head: bool = False) -> S3Response:
    """The response to a request that was refused; a response to HEAD has no document.

    Arguments: ``resource``: the path of the request; ``request_id``: by which its log lines are found.
    """
    headers = {"x-amz-request-id": request_id} if request_id else {}
    if (region := error.details.get("Region")) is not None:  # a client cannot read it from a document, after HEAD
        headers["x-amz-bucket-region"] = region
    if is_head:
        return S3Response(status=error.code.status, headers=headers)
    elements = {"Code": error.code.name, "Message": str(error), **error.details}
    elements |= {"Resource": resource, "RequestId": request_id}
    content = [xml_text(name, readable(value)) for name, value in elements.items()]
    document = xml_document("Error", content, namespace=None)
    return S3Response(status=error.code.status, headers={"content-type": "application/xml"} | headers, body=document)


def empty_response(status: int = 200, **headers: str) -> S3Response:
    """A response without a body: 204 for what was deleted, 200 for a bucket; underscores of names become hyphens."""
    return S3Response(status=status, headers={name.replace("_", "-"): value for name, value in headers.items()})


def put_response(etag: str, checksums: Mapping[str, str] | None = None) -> S3Response:
    """The response to PutObject and UploadPart."""
    return S3Response(headers={"etag": quoted_etag(etag)} | _checksum_headers(checksums or {}))


def object_response(operation: GetObject, stored: StoredObject) -> S3Response:
    """The response to GetObject or HeadObject; ``content`` says which bytes of the object follow.

    Raises S3Error: PreconditionFailed, InvalidRange and InvalidPartNumber.
    """
    headers = {
        "accept-ranges": "bytes",
        "content-type": DEFAULT_TYPE,
        "etag": quoted_etag(stored.etag),
        "last-modified": http_time(stored.modified),
        **stored.object_headers.headers,
        **operation.overrides,
        **{f"x-amz-meta-{name}": value for name, value in stored.object_headers.metadata.items()},
    }
    if stored.storage_class != "STANDARD":
        headers["x-amz-storage-class"] = stored.storage_class
    failure = operation.conditions.failure(stored.etag, stored.modified)
    if failure is not None and failure.code is not S3Code.NotModified:
        raise failure
    if failure is not None:
        return S3Response(status=304, headers={name: headers[name] for name in _OF_NOT_MODIFIED if name in headers})
    wanted = _wanted_range(operation, stored)
    start, stop = wanted or (0, stored.size)
    is_partial = wanted is not None and start < stop
    if is_partial:
        headers["content-range"] = f"bytes {start}-{stop - 1}/{stored.size}"
    if operation.part_number is not None and stored.part_sizes:
        headers["x-amz-mp-parts-count"] = str(len(stored.part_sizes))
    if wanted is None and operation.wants_checksum:
        headers |= _checksum_headers(stored.checksums)
    headers["content-length"] = str(stop - start)
    return S3Response(
        status=206 if is_partial else 200,
        headers=headers,
        content=None if isinstance(operation, HeadObject) else (start, stop),
    )


def _wanted_range(operation: GetObject, stored: StoredObject) -> tuple[int, int] | None:
    """The first byte that is asked for, and the one behind the last; None: the whole object."""
    if operation.part_number is not None:
        sizes = stored.part_sizes or (stored.size,)
        if operation.part_number > len(sizes):
            raise S3Error(S3Code.InvalidPartNumber, ActualPartCount=str(len(sizes)))
        stop = sum(sizes[: operation.part_number])
        return stop - sizes[operation.part_number - 1], stop
    condition = {} if operation.if_range is None else {"if-range": operation.if_range}
    if operation.range is None or not range_still_holds(condition, {stored.etag}, stored.modified):
        return None
    return operation.range.within(stored.size)


def _checksum_headers(checksums: Mapping[str, str]) -> dict[str, str]:
    headers = {f"x-amz-checksum-{name}": value for name, value in checksums.items()}
    for name, value in checksums.items():
        headers[CHECKSUM_TYPE] = ChecksumKind(name, is_of_parts="-" in value).headers[CHECKSUM_TYPE]
    return headers


def _checksum_elements(checksums: Mapping[str, str]) -> list[str]:
    """The checksum of an object in a document, with its type."""
    kind = _checksum_headers(checksums).get(CHECKSUM_TYPE)
    return [*_checksums_of_part(checksums), xml_text("ChecksumType", kind)]


def _checksums_of_part(checksums: Mapping[str, str]) -> list[str]:
    return [xml_text(f"Checksum{name.upper()}", value) for name, value in checksums.items()]


def _kind_elements(kind: ChecksumKind | None) -> list[str]:
    headers = {} if kind is None else kind.headers
    return [
        xml_text("ChecksumAlgorithm", headers.get(CHECKSUM_ALGORITHM)),
        xml_text("ChecksumType", headers.get(CHECKSUM_TYPE)),
    ]


# ---------------------------------------------------------------- documents


def document_response(root: str, content: Iterable[str]) -> S3Response:
    """A response with an XML document."""
    return S3Response(headers={"content-type": "application/xml"}, body=xml_document(root, content))


def buckets_response(
    operation: ListBuckets, buckets: Sequence[BucketEntry], owner: S3Owner, next_after: str | None = None
) -> S3Response:
    """The response to ListBuckets; ``next_after``: the last bucket of this page, if others follow."""
    rows = [
        xml_element("Bucket", xml_text("Name", bucket.name), xml_text("CreationDate", iso_time(bucket.created)))
        for bucket in buckets
    ]
    return document_response(
        "ListAllMyBucketsResult",
        [
            _owner("Owner", owner),
            xml_element("Buckets", *rows),
            xml_text("Prefix", operation.prefix or None),
            xml_text("ContinuationToken", None if next_after is None else token_after(next_after)),
        ],
    )


def location_response(region: str) -> S3Response:
    """The response to GetBucketLocation; us-east-1 is the empty text."""
    document = xml_document("LocationConstraint", ["" if region == DEFAULT_REGION else xml_escaped(region)])
    return S3Response(headers={"content-type": "application/xml"}, body=document)


def versioning_response() -> S3Response:
    """The response to GetBucketVersioning: a bucket never had versions."""
    return document_response("VersioningConfiguration", [])


def objects_response(operation: ListObjects, page: ListPage, owner: S3Owner) -> S3Response:
    """The response to ListObjects. The next marker is sent also without a delimiter, which clients may use."""
    return document_response(
        "ListBucketResult",
        [
            *_listing(operation, page, operation.max_keys),
            _encoded(operation, "Marker", operation.marker),
            _encoded(operation, "NextMarker", page.next_after),
            *_rows(operation, page, owner),
        ],
    )


def objects_v2_response(operation: ListObjectsV2, page: ListPage, owner: S3Owner) -> S3Response:
    """The response to ListObjectsV2."""
    return document_response(
        "ListBucketResult",
        [
            *_listing(operation, page, operation.max_keys),
            xml_text("KeyCount", len(page.objects) + len(page.prefixes)),
            xml_text("ContinuationToken", operation.continuation_token),
            xml_text("NextContinuationToken", None if page.next_after is None else token_after(page.next_after)),
            _encoded(operation, "StartAfter", operation.start_after or None),
            *_rows(operation, page, owner if operation.fetch_owner else None),
        ],
    )


def versions_response(operation: ListObjectVersions, page: ListPage, owner: S3Owner) -> S3Response:
    """The response to ListObjectVersions of a bucket that never had versions: each object is its only one."""
    return document_response(
        "ListVersionsResult",
        [
            *_listing(operation, page, operation.max_keys),
            _encoded(operation, "KeyMarker", operation.marker),
            xml_text("VersionIdMarker", operation.version_id_marker),
            _encoded(operation, "NextKeyMarker", page.next_after),
            xml_text("NextVersionIdMarker", None if page.next_after is None else NULL_VERSION),
            *_rows(operation, page, owner, "Version", xml_text("VersionId", NULL_VERSION), xml_text("IsLatest", True)),
        ],
    )


def deleted_response(keys: Iterable[str], errors: Iterable[tuple[str, S3Error]], *, is_quiet: bool) -> S3Response:
    """The response to DeleteObjects: the keys that are deleted now, and the errors of others.

    A client could read nothing of it if a key had a character that XML does not have, so another one is in its place.
    """
    deleted = [] if is_quiet else [xml_element("Deleted", xml_text("Key", readable(key))) for key in keys]
    failed = [
        xml_element("Error", *(xml_text(name, readable(value)) for name, value in elements))
        for key, error in errors
        for elements in [(("Key", key), ("Code", error.code.name), ("Message", str(error)))]
    ]
    return document_response("DeleteResult", [*deleted, *failed])


def copied_response(
    etag: str, modified: datetime, checksums: Mapping[str, str], *, is_part: bool = False
) -> S3Response:
    """The response to CopyObject, or to UploadPartCopy."""
    return document_response(
        "CopyPartResult" if is_part else "CopyObjectResult",
        [
            xml_text("LastModified", iso_time(modified)),
            xml_text("ETag", quoted_etag(etag)),
            *(_checksums_of_part(checksums) if is_part else _checksum_elements(checksums)),
        ],
    )


def upload_response(operation: CreateMultipartUpload, upload_id: str) -> S3Response:
    """The response to CreateMultipartUpload."""
    content = [
        xml_text("Bucket", operation.bucket), xml_text("Key", operation.key), xml_text("UploadId", upload_id)
    ]  # fmt: skip
    answer = document_response("InitiateMultipartUploadResult", content)
    kind = operation.checksum_kind
    return answer if kind is None else msgspec.structs.replace(answer, headers={**answer.headers, **kind.headers})


def completed_response(
    operation: CompleteMultipartUpload, etag: str, location: str, checksums: Mapping[str, str]
) -> S3Response:
    """The response to CompleteMultipartUpload; ``location``: the URL of the object."""
    return document_response(
        "CompleteMultipartUploadResult",
        [
            xml_text("Location", location),
            xml_text("Bucket", operation.bucket),
            xml_text("Key", operation.key),
            xml_text("ETag", quoted_etag(etag)),
            *_checksum_elements(checksums),
        ],
    )


def parts_response(
    operation: ListParts, parts: Sequence[PartEntry], owner: S3Owner, kind: ChecksumKind | None, *, is_truncated: bool
) -> S3Response:
    """The response to ListParts."""
    rows = [
        xml_element(
            "Part",
            xml_text("PartNumber", part.number),
            xml_text("LastModified", iso_time(part.modified)),
            xml_text("ETag", quoted_etag(part.etag)),
            xml_text("Size", part.size),
            *_checksums_of_part(part.checksums),
        )
        for part in parts
    ]
    return document_response(
        "ListPartsResult",
        [
            xml_text("Bucket", operation.bucket),
            xml_text("Key", _url(operation.key) if operation.is_url_encoded else operation.key),
            xml_text("EncodingType", "url" if operation.is_url_encoded else None),
            xml_text("UploadId", operation.upload_id),
            _owner("Initiator", owner),
            _owner("Owner", owner),
            *_kind_elements(kind),
            xml_text("StorageClass", "STANDARD"),
            xml_text("PartNumberMarker", operation.marker),
            xml_text("NextPartNumberMarker", parts[-1].number if parts else operation.marker),
            xml_text("MaxParts", operation.max_parts),
            xml_text("IsTruncated", is_truncated),
            *rows,
        ],
    )


def uploads_response(
    operation: ListMultipartUploads,
    uploads: Sequence[UploadEntry],
    owner: S3Owner,
    *,
    prefixes: Sequence[str] = (),
    next_after: tuple[str, str] | None = None,
) -> S3Response:
    """The response to ListMultipartUploads; ``next_after``: the key and the upload that the next page follows."""
    next_key, next_upload = next_after or (None, None)
    rows = [
        xml_element(
            "Upload",
            _encoded(operation, "Key", upload.key),
            xml_text("UploadId", upload.upload_id),
            _owner("Initiator", owner),
            _owner("Owner", owner),
            xml_text("StorageClass", upload.storage_class),
            xml_text("Initiated", iso_time(upload.begun)),
            *_kind_elements(upload.checksum_kind),
        )
        for upload in uploads
    ]
    return document_response(
        "ListMultipartUploadsResult",
        [
            xml_text("Bucket", operation.bucket),
            _encoded(operation, "KeyMarker", operation.key_marker),
            xml_text("UploadIdMarker", operation.upload_id_marker),
            _encoded(operation, "NextKeyMarker", next_key),
            xml_text("NextUploadIdMarker", next_upload),
            _encoded(operation, "Prefix", operation.prefix),
            _encoded(operation, "Delimiter", operation.delimiter or None),
            xml_text("EncodingType", "url" if operation.is_url_encoded else None),
            xml_text("MaxUploads", operation.max_uploads),
            xml_text("IsTruncated", next_after is not None),
            *rows,
            *_prefixes(operation, prefixes),
        ],
    )


def _listing(operation: Listing, page: ListPage, max_keys: int) -> list[str]:
    return [
        xml_text("Name", operation.bucket),
        _encoded(operation, "Prefix", operation.prefix),
        _encoded(operation, "Delimiter", operation.delimiter or None),
        xml_text("EncodingType", "url" if operation.is_url_encoded else None),
        xml_text("MaxKeys", max_keys),
        xml_text("IsTruncated", page.next_after is not None),
    ]


def _rows(operation: Listing, page: ListPage, owner: S3Owner | None, name: str = "Contents", *more: str) -> list[str]:
    return [
        *(
            xml_element(
                name,
                _encoded(operation, "Key", entry.key),
                *more,
                xml_text("LastModified", iso_time(entry.modified)),
                xml_text("ETag", quoted_etag(entry.etag)),
                xml_text("Size", entry.size),
                _owner("Owner", owner) if owner else "",
                xml_text("StorageClass", entry.storage_class),
            )
            for entry in page.objects
        ),
        *_prefixes(operation, page.prefixes),
    ]


def _prefixes(operation: Listing, prefixes: Sequence[str]) -> list[str]:
    return [xml_element("CommonPrefixes", _encoded(operation, "Prefix", prefix)) for prefix in prefixes]


def _encoded(operation: Listing, name: str, value: str | None) -> str:
    """A key, prefix or marker: percent-encoded, if the client wants that, because XML cannot hold every key."""
    return xml_text(name, _url(value) if value is not None and operation.is_url_encoded else value)


def _url(text: str) -> str:
    return percent_encoded(text.encode(), safe="/").decode()


def _owner(name: str, owner: S3Owner) -> str:
    return xml_element(name, xml_text("ID", owner.id), xml_text("DisplayName", owner.name))
