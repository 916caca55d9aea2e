"""Who asks, and whether that access key may do it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

import msgspec

from peerd.domain.access import FileAccessKey
from peerd.doorbell.cluster_secret import derive_access_secret
from peerd.storage.node import StorageNode
from peerd.storage.s3 import operations
from peerd.storage.s3.errors import S3Code, S3Error
from peerd.storage.s3.http_request import S3HttpRequest
from peerd.storage.s3.requests import S3RequestParser
from peerd.storage.s3.signature import SignatureVerifier, VerifiedSignature
from peerd.store.tokens import find_access_key, note_use
from peerd.store.users import WRITTEN_EVERY

_KEY_ID: Final = re.compile(r"[A-Z0-9]{1,20}")


class Admitted(msgspec.Struct, frozen=True):
    """A request whose signature is right, and which its access key may make."""

    key: FileAccessKey
    verified: VerifiedSignature
    operation: operations.S3Operation


def admit(node: StorageNode, request: S3HttpRequest) -> Admitted:
    """Verify the signature of a request, find its operation, and check that the access key may do it.

    Raises:
        S3Error: InvalidAccessKeyId for a key that is not valid, SignatureDoesNotMatch, AccessDenied, and what
            the request itself is refused for.
        DatabaseUnavailable: the database does not answer.
    """
    found: list[FileAccessKey] = []

    def secret_of(key_id: str) -> str | None:
        key = node.database.read(find_access_key, key_id) if _KEY_ID.fullmatch(key_id) else None
        if key is None or not key.is_valid:
            return None
        found.append(key)
        return derive_access_secret(node.secret, key.id)

    present = datetime.fromtimestamp(node.clock(), UTC)
    verified = SignatureVerifier(secret_of).verify(request, present)
    [key] = found
    operation = S3RequestParser(node.options.s3_domain).parse(request)
    check_permission(key, operation)
    if key.last_used_at is None or (present - key.last_used_at).total_seconds() > WRITTEN_EVERY:
        node.database.run(note_use, key.id)
    return Admitted(key, verified, operation)


def check_permission(key: FileAccessKey, operation: operations.S3Operation) -> None:
    """Raise S3Error unless the access key may do this; of DeleteObjects, each key is checked by itself."""
    if not _is_permitted(key, operation):
        raise S3Error(S3Code.AccessDenied, f"the access key {key.id} may not do this ({type(operation).__name__})")


def may_delete(key: FileAccessKey, bucket: str, name: str) -> bool:
    """Whether an access key may delete a file."""
    return key.rights.can_write and key.has_key(bucket, name)


def _is_permitted(key: FileAccessKey, operation: operations.S3Operation) -> bool:  # noqa: PLR0911 - a table
    can_read, can_write = key.rights.can_read, key.rights.can_write
    match operation:
        case operations.ListBuckets():
            return True
        case operations.CreateBucket() | operations.DeleteBucket():
            return can_write and key.has_whole_bucket(operation.bucket)
        case operations.HeadBucket() | operations.GetBucketLocation() | operations.GetBucketVersioning():
            return key.sees_bucket(operation.bucket)
        case operations.ListMultipartUploads():
            return can_write and key.has_key(operation.bucket, operation.prefix)
        case operations.Listing():
            return can_read and key.has_key(operation.bucket, operation.prefix)
        case operations.DeleteObjects():
            return can_write and key.sees_bucket(operation.bucket)
        case operations.CopyObject() | operations.UploadPartCopy():
            source = operation.source
            may_read = can_read and key.has_key(source.bucket, source.key)
            return may_read and can_write and key.has_key(operation.bucket, operation.key)
        case operations.GetObject():
            return can_read and key.has_key(operation.bucket, operation.key)
        case operations.ObjectOperation():
            return can_write and key.has_key(operation.bucket, operation.key)
        case _:
            return False
