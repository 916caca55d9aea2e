"""The operations of S3 as values. Texts are decoded; numbers are within their ranges, limits are at most 1,000."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from peerd.storage.s3.conditions import Conditions, RequestedRange

CHECKSUM_ALGORITHM: Final = "x-amz-checksum-algorithm"
CHECKSUM_TYPE: Final = "x-amz-checksum-type"


class S3Operation(msgspec.Struct, frozen=True, kw_only=True):
    """What a client wants."""


class ObjectHeaders(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept with an object and sent with it: headers of HTTP, by their names in lower case, and the user's
    metadata, by names without ``x-amz-meta-``. Values are text as Latin-1, so that their bytes remain the same.
    """

    headers: Mapping[str, str] = {}
    metadata: Mapping[str, str] = {}


class Checksum(msgspec.Struct, frozen=True):
    """A checksum that the client names: an algorithm as in ``x-amz-checksum-<algorithm>``, and its Base64 text."""

    algorithm: str
    value: str


class ChecksumKind(msgspec.Struct, frozen=True):
    """Which checksum an object has that is uploaded in parts: of its bytes, or of the checksums of its parts."""

    algorithm: str
    is_of_parts: bool

    @property
    def headers(self) -> dict[str, str]:
        """As clients name it, and as it is kept with an upload."""
        kind = "COMPOSITE" if self.is_of_parts else "FULL_OBJECT"
        return {CHECKSUM_ALGORITHM: self.algorithm.upper(), CHECKSUM_TYPE: kind}


class CopySource(msgspec.Struct, frozen=True, kw_only=True):
    """The object that is copied, and the conditions on it."""

    bucket: str
    key: str
    conditions: Conditions = Conditions()


class ListBuckets(S3Operation, frozen=True, kw_only=True):
    """List the buckets whose names begin with ``prefix`` and follow ``after``."""

    prefix: str = ""
    after: str = ""
    max_buckets: int = 1000


class BucketOperation(S3Operation, frozen=True, kw_only=True):
    """What the operations on a bucket have."""

    bucket: str


class CreateBucket(BucketOperation, frozen=True, kw_only=True):
    """Create a bucket. The body is empty, or names the region (`documents.location_constraint`)."""


class DeleteBucket(BucketOperation, frozen=True, kw_only=True):
    """Delete an empty bucket."""


class HeadBucket(BucketOperation, frozen=True, kw_only=True):
    """Find out whether a bucket exists."""


class GetBucketLocation(BucketOperation, frozen=True, kw_only=True):
    """Return the region of a bucket."""


class GetBucketVersioning(BucketOperation, frozen=True, kw_only=True):
    """Return whether a bucket keeps versions: none does."""


class Listing(BucketOperation, frozen=True, kw_only=True):
    """What the operations have that list keys. Keys with the same text up to ``delimiter`` are one common prefix."""

    prefix: str = ""
    delimiter: str = ""
    is_url_encoded: bool = False


class ListObjects(Listing, frozen=True, kw_only=True):
    """List keys that follow ``marker``: the first version of this operation."""

    marker: str = ""
    max_keys: int = 1000


class ListObjectsV2(Listing, frozen=True, kw_only=True):
    """List keys that follow ``after``: it is the one that ``continuation_token`` stands for, else ``start_after``."""

    continuation_token: str | None = None
    start_after: str = ""
    after: str = ""
    max_keys: int = 1000
    fetch_owner: bool = False


class ListObjectVersions(ListObjects, frozen=True, kw_only=True):
    """List keys that follow ``marker``, each with its only version, which is called ``null``."""

    version_id_marker: str | None = None


class ListMultipartUploads(Listing, frozen=True, kw_only=True):
    """List uploads that follow ``key_marker`` and, of the same key, ``upload_id_marker``."""

    key_marker: str = ""
    upload_id_marker: str = ""
    max_uploads: int = 1000


class DeleteObjects(BucketOperation, frozen=True, kw_only=True):
    """Delete the objects that the body names (`documents.objects_to_delete`)."""


class ObjectOperation(BucketOperation, frozen=True, kw_only=True):
    """What the operations on an object have."""

    key: str


class PutObject(ObjectOperation, frozen=True, kw_only=True):
    """Store the body as an object."""

    object_headers: ObjectHeaders = ObjectHeaders()
    conditions: Conditions = Conditions()
    storage_class: str | None = None


class CopyObject(ObjectOperation, frozen=True, kw_only=True):
    """Store a copy of another object. ``object_headers`` is None if those of the source are kept."""

    source: CopySource
    object_headers: ObjectHeaders | None = None
    conditions: Conditions = Conditions()
    storage_class: str | None = None
    checksum_algorithm: str | None = None


class GetObject(ObjectOperation, frozen=True, kw_only=True):
    """Return an object, a range of it, or one of the parts in which it was uploaded. ``if_range``: as the header, see
    RFC 9110, 13.1.5. ``overrides`` replace headers of the response.
    """

    range: RequestedRange | None = None
    if_range: str | None = None
    part_number: int | None = None
    conditions: Conditions = Conditions()
    overrides: Mapping[str, str] = {}
    wants_checksum: bool = False


class HeadObject(GetObject, frozen=True, kw_only=True):
    """Return the headers of an object."""


class DeleteObject(ObjectOperation, frozen=True, kw_only=True):
    """Delete an object; it is no error if there is none."""

    conditions: Conditions = Conditions()


class CreateMultipartUpload(ObjectOperation, frozen=True, kw_only=True):
    """Begin an upload in parts."""

    object_headers: ObjectHeaders = ObjectHeaders()
    storage_class: str | None = None
    checksum_kind: ChecksumKind | None = None


class UploadOperation(ObjectOperation, frozen=True, kw_only=True):
    """What the operations on an upload in parts have."""

    upload_id: str


class UploadPart(UploadOperation, frozen=True, kw_only=True):
    """Store the body as a part, 1 to 10,000."""

    part_number: int


class UploadPartCopy(UploadPart, frozen=True, kw_only=True):
    """Store an object, or a range of it, as a part."""

    source: CopySource
    range: RequestedRange | None = None


class CompleteMultipartUpload(UploadOperation, frozen=True, kw_only=True):
    """Make an object of the parts that the body names (`documents.completed_parts`)."""

    conditions: Conditions = Conditions()
    checksum: Checksum | None = None
    checksum_type: str | None = None
    object_size: int | None = None


class AbortMultipartUpload(UploadOperation, frozen=True, kw_only=True):
    """Discard an upload and its parts."""


class ListParts(UploadOperation, frozen=True, kw_only=True):
    """List the parts of an upload whose numbers follow ``marker``."""

    marker: int = 0
    max_parts: int = 1000
    is_url_encoded: bool = False
