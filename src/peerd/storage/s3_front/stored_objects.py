"""Files as objects of S3, and the reverse: ETags, storage classes, headers and conditions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, Final

from peerd.domain.files import StoredFile
from peerd.storage.s3.checksums import CHECKSUM_PREFIX, checksum_headers
from peerd.storage.s3.errors import S3Code, S3Error
from peerd.storage.s3.requests import Conditions, ObjectHeaders, ObjectReading
from peerd.storage.s3_front.exchange import S3Response
from peerd.storage.server.ranges import ANY, http_date, range_still_holds
from peerd.store.files.buckets import Bucket
from peerd.store.files.versions import UNCONDITIONAL, Condition

STANDARD: Final = "STANDARD"
"""The storage class that stands for the class of the bucket."""
OF_AWS: Final = frozenset({
    STANDARD, "DEEP_ARCHIVE", "GLACIER", "GLACIER_IR", "INTELLIGENT_TIERING", "ONEZONE_IA", "REDUCED_REDUNDANCY",
    "STANDARD_IA",
})  # fmt: skip
"""What AWS calls its storage classes, as configurations name them: the same, unless there is a class of this name."""
PARTS: Final = "x-amz-mp-parts"
"""Kept with the headers of a file, as the checksums are: the sizes of the parts in which it was uploaded."""
OWNER: Final = (("ID", "peerd"), ("DisplayName", "peerd"))
"""All buckets belong to the cluster."""
_DEFAULT_TYPE: Final = "binary/octet-stream"
_OF_NOT_MODIFIED: Final = ("etag", "last-modified", "cache-control", "expires")
"""Headers by which a cache renews what it has (RFC 9110, 15.4.5)."""
_NO_MD5: Final = "-1"
"""A hyphen in an ETag says that it is no MD5: clients do not compare it."""
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


def etag_of(file: StoredFile) -> str:
    """The ETag of a file; one that no client of S3 has put has its BLAKE3 for it."""
    return file.etag or f"{file.blake3}{_NO_MD5}"


def quoted_etag(etag: str) -> str:
    """An ETag as HTTP and XML have it."""
    return f'"{etag}"'


def storage_class_of(class_name: str, bucket: Bucket) -> str:
    """The storage class of a file: the name of its class in capitals, if it is another one than the bucket's."""
    return STANDARD if class_name == bucket.class_name else class_name.upper()


def object_response(wanted: ObjectReading, file: StoredFile, bucket: Bucket) -> S3Response:
    """The response to GetObject or HeadObject.

    Raises S3Error: PreconditionFailed, InvalidRange and InvalidPartNumber.
    """
    headers = _headers(wanted, file, bucket)
    failure = wanted.conditions.failure(etag_of(file), file.created_at)
    if failure is not None and failure.code is not S3Code.NotModified:
        raise failure
    if failure is not None:
        return S3Response(status=304, headers={name: headers[name] for name in _OF_NOT_MODIFIED if name in headers})
    part_sizes = part_sizes_of(file.headers.get(PARTS, ""))
    part = _wanted_range(wanted, file, part_sizes)
    start, stop = part or (0, file.size)
    is_partial = part is not None and start < stop
    if is_partial:
        headers["content-range"] = f"bytes {start}-{stop - 1}/{file.size}"
    if wanted.part_number is not None and part_sizes:
        headers["x-amz-mp-parts-count"] = str(len(part_sizes))
    if part is None and wanted.wants_checksum:
        headers |= checksum_headers(checksums_of(file))
    headers["content-length"] = str(stop - start)
    return S3Response(status=206 if is_partial else 200, headers=headers, content=(start, stop))


def _headers(wanted: ObjectReading, file: StoredFile, bucket: Bucket) -> dict[str, str]:
    """The headers that do not depend on which bytes follow."""
    kept, storage_class = object_headers_of(file), storage_class_of(file.class_name, bucket)
    headers = {
        "accept-ranges": "bytes",
        "content-type": _DEFAULT_TYPE,
        "etag": quoted_etag(etag_of(file)),
        "last-modified": http_date(file.created_at),
        **kept.headers,
        **wanted.overrides,
        **{f"x-amz-meta-{name}": value for name, value in kept.metadata.items()},
    }
    if storage_class != STANDARD:
        headers["x-amz-storage-class"] = storage_class
    return headers


def _wanted_range(wanted: ObjectReading, file: StoredFile, part_sizes: tuple[int, ...]) -> tuple[int, int] | None:
    """The first byte that is asked for, and the one behind the last; None: the whole object."""
    if wanted.part_number is not None:
        sizes = part_sizes or (file.size,)
        if wanted.part_number > len(sizes):
            raise S3Error(S3Code.InvalidPartNumber, ActualPartCount=str(len(sizes)))
        stop = sum(sizes[: wanted.part_number])
        return stop - sizes[wanted.part_number - 1], stop
    condition = {} if wanted.if_range is None else {"if-range": wanted.if_range}
    if wanted.range is None or not range_still_holds(condition, {etag_of(file)}, file.created_at):
        return None
    return wanted.range.within(file.size)


def object_headers_of(file: StoredFile) -> ObjectHeaders:
    """The headers and the metadata that a client gets with a file, those that can be headers: other clients may have
    put metadata that cannot.
    """
    headers = {name: value for name, value in file.headers.items() if not name.startswith("x-amz-")}
    if file.content_type is not None:
        headers["content-type"] = file.content_type
    metadata = {
        name: value
        for name, value in file.metadata.items()
        if _HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value)
    }
    return ObjectHeaders(headers=headers, metadata=metadata)


def checksums_of(file: StoredFile) -> dict[str, str]:
    """The checksum of a file, by its algorithm, if it has one."""
    return {
        name.removeprefix(CHECKSUM_PREFIX): value
        for name, value in file.headers.items()
        if name.startswith(CHECKSUM_PREFIX)
    }


def part_sizes_as_text(sizes: Iterable[int]) -> str:
    """The sizes of parts as a short text: nearly all parts of an upload have the same.

    >>> part_sizes_as_text([8, 8, 8, 5]), part_sizes_of("3*8,1*5")
    ('3*8,1*5', (8, 8, 8, 5))
    """
    return ",".join(f"{len(list(equal))}*{size}" for size, equal in groupby(sizes))


def part_sizes_of(text: str) -> tuple[int, ...]:
    """The sizes that `part_sizes_as_text` has written; none if the text is empty."""
    runs = [run.split("*") for run in text.split(",") if run]
    return tuple(int(size) for count, size in runs for _ in range(int(count)))


def kept_with(object_headers: ObjectHeaders, checksums: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What is kept with a file: its content type, its metadata, and its other headers, by the names of `Received`."""
    headers = dict(object_headers.headers)
    content_type = headers.pop("content-type", None)
    headers |= {f"{CHECKSUM_PREFIX}{name}": value for name, value in (checksums or {}).items()}
    return {"content_type": content_type, "metadata": dict(object_headers.metadata), "headers": headers}


def condition_of(conditions: Conditions) -> Condition:
    """The condition of a write: S3 takes ``If-None-Match: *``, or ``If-Match`` with one ETag. Raises S3Error."""
    if conditions.if_none_match not in (None, (ANY,)):
        raise S3Error(S3Code.NotImplemented, "If-None-Match must be '*' for a write")
    if conditions.if_none_match is not None and conditions.if_match is not None:
        raise S3Error(S3Code.InvalidRequest, "a write takes If-Match or If-None-Match, not both")
    if conditions.if_modified_since is not None or conditions.if_unmodified_since is not None:
        raise S3Error(S3Code.NotImplemented, "a write takes no conditions on times")
    if conditions.if_none_match is not None:
        return Condition(is_absent=True)
    if conditions.if_match is None:
        return UNCONDITIONAL
    if len(conditions.if_match) != 1 or ANY in conditions.if_match:
        raise S3Error(S3Code.NotImplemented, "If-Match of a write must be one ETag")
    return condition_on_tag(conditions.if_match[0])


def condition_on_tag(etag: str | None) -> Condition:
    """The condition that the current version has this ETag; None: no condition."""
    if etag is None:
        return UNCONDITIONAL
    is_blake3 = len(etag) == 64 + len(_NO_MD5)
    return Condition(tag=etag.removesuffix(_NO_MD5) if is_blake3 else etag)
