"""Files as objects of S3, and the reverse: ETags, storage classes, headers and conditions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from typing import Any, Final

from peerd.domain.files import StoredFile
from peerd.storage.s3.conditions import ANY, Conditions
from peerd.storage.s3.errors import S3Code, S3Error
from peerd.storage.s3.operations import ObjectHeaders
from peerd.storage.s3.responses import StoredObject
from peerd.store.files.buckets import Bucket
from peerd.store.files.versions import UNCONDITIONAL, Condition

STANDARD: Final = "STANDARD"
"""The storage class that stands for the class of the bucket."""
OF_AWS: Final = frozenset({
    STANDARD, "DEEP_ARCHIVE", "GLACIER", "GLACIER_IR", "INTELLIGENT_TIERING", "ONEZONE_IA", "REDUCED_REDUNDANCY",
    "STANDARD_IA",
})  # fmt: skip
"""What AWS calls its storage classes, as configurations name them: the same, unless there is a class of this name."""
CHECKSUM_PREFIX: Final = "x-amz-checksum-"
PARTS: Final = "x-amz-mp-parts"
"""Kept with the headers of a file, as the checksums are: the sizes of the parts in which it was uploaded."""
MAX_CONTENT_TYPE: Final = 255
_NO_MD5: Final = "-1"
"""A hyphen in an ETag says that it is no MD5: clients do not compare it."""
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def etag_of(file: StoredFile) -> str:
    """The ETag of a file; one that no client of S3 has put has its BLAKE3 for it."""
    return file.etag or f"{file.blake3}{_NO_MD5}"


def storage_class_of(class_name: str, bucket: Bucket) -> str:
    """The storage class of a file: the name of its class in capitals, if it is another one than the bucket's."""
    return STANDARD if class_name == bucket.class_name else class_name.upper()


def stored_object(file: StoredFile, bucket: Bucket) -> StoredObject:
    """A file as its headers show it."""
    headers = {name: value for name, value in file.headers.items() if not name.startswith("x-amz-")}
    if file.content_type is not None:
        headers["content-type"] = file.content_type
    return StoredObject(
        size=file.size,
        etag=etag_of(file),
        modified=file.created_at,
        part_sizes=part_sizes_of(file.headers.get(PARTS, "")),
        object_headers=ObjectHeaders(headers=headers, metadata=_as_headers(file.metadata)),
        checksums=checksums_of(file),
        storage_class=storage_class_of(file.class_name, bucket),
    )


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


def kept_with(object_headers: ObjectHeaders, checksums: dict[str, str] | None = None) -> dict[str, Any]:
    """What is kept with a file: its content type, its metadata, and its other headers, by the names of `Received`.

    Raises S3Error: InvalidArgument for a content type that is too long.
    """
    headers = dict(object_headers.headers)
    content_type = headers.pop("content-type", None)
    if content_type is not None and len(content_type) > MAX_CONTENT_TYPE:
        raise S3Error(S3Code.InvalidArgument, f"the content type is longer than {MAX_CONTENT_TYPE} characters")
    headers |= {f"{CHECKSUM_PREFIX}{name}": value for name, value in (checksums or {}).items()}
    return {"content_type": content_type, "metadata": dict(object_headers.metadata), "headers": headers}


def condition_of(conditions: Conditions) -> Condition:
    """The condition of a write. Raises S3Error: NotImplemented for If-Match with several ETags, or any."""
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


def _as_headers(metadata: dict[str, str]) -> dict[str, str]:
    """Metadata whose names and values are headers: other clients may have put text that cannot be one."""
    return {
        name: value for name, value in metadata.items() if _HEADER_NAME.fullmatch(name) and not _CONTROL.search(value)
    }
