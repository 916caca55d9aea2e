"""What the storage server does with a request of S3: verify, find the operation, permit, do, answer.

`_OPERATIONS` is the table of operations. A query parameter that an operation does not take is refused with
NotImplemented, never ignored: to ignore ``?acl`` would store an access control list as the object.
"""

from __future__ import annotations

import re
import secrets
from asyncio import to_thread
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from peerd.domain.access import FileAccessKey
from peerd.domain.quoting import quoted
from peerd.doorbell.cluster_secret import derive_access_secret
from peerd.storage.node import StorageNode
from peerd.storage.s3.errors import S3Code, S3Error
from peerd.storage.s3.http_request import S3HttpRequest
from peerd.storage.s3.requests import COPY_SOURCE, OVERRIDES, S3Request
from peerd.storage.s3.signature import VerifiedSignature, verify_signature
from peerd.storage.s3_front import buckets, completion, objects, uploads
from peerd.storage.s3_front.exchange import S3Exchange, as_s3_error, drain, error_response, send_response
from peerd.storage.server.http_io import ClientGone, Request, Response
from peerd.storage.transfer.node_signature import HEADER
from peerd.store.tokens import find_access_key, note_use
from peerd.store.users import WRITTEN_EVERY

_OF_NODES: Final = frozenset({"contents", "files", "uploads", "health"})
_SIGNED_QUERY: Final = re.compile(rb"(^|&)(X-Amz-(Algorithm|Credential|Signature)|AWSAccessKeyId)=")

_KEY_ID: Final = re.compile(r"[A-Z0-9]{1,20}")


def is_s3_request(request: Request) -> bool:
    """Whether a request is for S3: it has a signature of AWS, or a path that nodes do not have."""
    if request.headers.get("authorization", "").startswith("AWS"):
        return True
    if _SIGNED_QUERY.search(request.scope["query_string"]):
        return True
    kind = request.scope["raw_path"].decode("latin-1").lstrip("/").partition("/")[0]
    return kind not in _OF_NODES and HEADER not in request.headers


async def serve_s3(node: StorageNode, incoming: Request, response: Response) -> None:
    """Answer a request of S3.

    Raises:
        ClientGone: the client has closed the connection.
    """
    request_id = secrets.token_hex(8).upper()
    try:
        await _serve(node, incoming, response, request_id)
    except ClientGone:
        raise
    except Exception as error:
        failure = as_s3_error(error)
        if failure is None or response.has_begun:
            raise
        path = incoming.scope["raw_path"].decode("latin-1")
        is_head = incoming.method == "HEAD"
        answer = error_response(failure, resource=path, request_id=request_id, is_head=is_head)
        await send_response(response, answer, request_id, closes=not await drain(incoming))


async def _serve(node: StorageNode, incoming: Request, response: Response, request_id: str) -> None:
    scope = incoming.scope
    http = S3HttpRequest(incoming.method, scope["raw_path"], scope["query_string"], scope["headers"])
    if HEADER in incoming.headers:  # relayed by another node
        node.verifier.verify(incoming.method, incoming.target, incoming.headers)
    key, verified, request, operation = await to_thread(_admit, node, http)
    exchange = S3Exchange(node, key, verified, request, incoming, response, request_id)
    await operation.carry_out(exchange)


def _admit(node: StorageNode, http: S3HttpRequest) -> tuple[FileAccessKey, VerifiedSignature, S3Request, Operation]:
    """Verify the signature of a request, find its operation, and check that its access key may do it.

    Raises:
        S3Error: InvalidAccessKeyId for a key that is not valid, SignatureDoesNotMatch, AccessDenied, and what the
            request itself is refused for.
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
    verified = verify_signature(http, secret_of, present)
    [key] = found
    request = S3Request(http, node.options.s3_domain)
    operation = operation_of(request)
    if not operation.is_permitted(key, request):
        raise S3Error(S3Code.AccessDenied, f"the access key {key.id} may not do this ({operation.name})")
    if key.last_used_at is None or (present - key.last_used_at).total_seconds() > WRITTEN_EVERY:
        node.database.run(note_use, key.id)
    return key, verified, request, operation


def operation_of(request: S3Request) -> Operation:
    """The operation that a request is for.

    Raises S3Error: NotImplemented for an operation or a query parameter that this server does not have,
    MethodNotAllowed.
    """
    method = request.http.method
    operations = _OPERATIONS.get(f"{method} {request.level}")
    if operations is None and method in {"GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS"}:
        raise S3Error(S3Code.NotImplemented, f"{method} is not available for this resource")
    if operations is None:
        raise S3Error(S3Code.MethodNotAllowed, Method=method[:32])
    present = request.parameter_names
    selecting = {*present, COPY_SOURCE} if request.is_copy else present
    operation = next((one for one in operations if one.selectors <= selecting), None)
    unknown = present if operation is None else present - operation.parameters
    if operation is None or unknown:
        names = ", ".join(map(quoted, sorted(unknown)[:5])) or "this resource"
        raise S3Error(S3Code.NotImplemented, f"{method} with {names} is not available on this server")
    return operation


# ---------------------------------------------------------------- what an access key may do


def _anything(_key: FileAccessKey, _request: S3Request) -> bool:
    return True


def _sees_bucket(key: FileAccessKey, request: S3Request) -> bool:
    return key.sees_bucket(request.bucket)


def _changes_bucket(key: FileAccessKey, request: S3Request) -> bool:
    return key.rights.can_write and key.has_whole_bucket(request.bucket)


def _lists_keys(key: FileAccessKey, request: S3Request) -> bool:
    return key.rights.can_read and key.has_key(request.bucket, request.text("prefix"))


def _lists_uploads(key: FileAccessKey, request: S3Request) -> bool:
    return key.rights.can_write and key.has_key(request.bucket, request.text("prefix"))


def _deletes_some(key: FileAccessKey, request: S3Request) -> bool:
    """Each key is checked by itself, when the document has been read."""
    return key.rights.can_write and key.sees_bucket(request.bucket)


def _reads(key: FileAccessKey, request: S3Request) -> bool:
    return key.rights.can_read and key.has_key(request.bucket, request.key)


def _writes(key: FileAccessKey, request: S3Request) -> bool:
    return key.rights.can_write and key.has_key(request.bucket, request.key)


def _copies(key: FileAccessKey, request: S3Request) -> bool:
    source = request.copy_source
    return key.rights.can_read and key.has_key(source.bucket, source.key) and _writes(key, request)


# ---------------------------------------------------------------- the table


class Operation:
    """An operation of S3.

    Args:
        name: as S3 has it.
        selectors: the query parameters and headers by which a request is for it; all of them must be there.
        is_permitted: whether an access key may do what a request wants.
        carry_out: does it, and answers.
        parameters: further query parameters that it takes.
    """

    def __init__(
        self,
        name: str,
        selectors: str,
        is_permitted: Callable[[FileAccessKey, S3Request], bool],
        carry_out: Callable[[S3Exchange], Awaitable[None]],
        parameters: str = "",
    ) -> None:
        self.name = name
        self.selectors = frozenset(selectors.split())
        self.is_permitted = is_permitted
        self.carry_out = carry_out
        self.parameters = self.selectors | frozenset(parameters.split())


_LIST: Final = "prefix delimiter encoding-type"
_LIST_V2: Final = f"{_LIST} continuation-token start-after max-keys fetch-owner"
_LIST_VERSIONS: Final = f"{_LIST} key-marker version-id-marker max-keys"
_LIST_UPLOADS: Final = f"{_LIST} key-marker upload-id-marker max-uploads"
_LIST_PARTS: Final = "part-number-marker max-parts encoding-type"
_READ: Final = f"versionId partNumber {' '.join(OVERRIDES)}"

_OPERATIONS: Final[Mapping[str, tuple[Operation, ...]]] = {
    "GET service": (
        Operation("ListBuckets", "", _anything, buckets.list_buckets, "prefix continuation-token max-buckets"),
    ),
    "PUT bucket": (Operation("CreateBucket", "", _changes_bucket, buckets.create_bucket),),
    "DELETE bucket": (Operation("DeleteBucket", "", _changes_bucket, buckets.delete_bucket),),
    "HEAD bucket": (Operation("HeadBucket", "", _sees_bucket, buckets.head_bucket),),
    "GET bucket": (
        Operation("GetBucketLocation", "location", _sees_bucket, buckets.get_location),
        Operation("GetBucketVersioning", "versioning", _sees_bucket, buckets.get_versioning),
        Operation("ListMultipartUploads", "uploads", _lists_uploads, uploads.send_uploads, _LIST_UPLOADS),
        Operation("ListObjectVersions", "versions", _lists_keys, buckets.list_versions, _LIST_VERSIONS),
        Operation("ListObjectsV2", "list-type", _lists_keys, buckets.list_objects_v2, _LIST_V2),
        Operation("ListObjects", "", _lists_keys, buckets.list_objects, f"{_LIST} marker max-keys"),
    ),
    "POST bucket": (Operation("DeleteObjects", "delete", _deletes_some, buckets.delete_objects),),
    "PUT object": (
        Operation("UploadPartCopy", f"uploadId {COPY_SOURCE}", _copies, uploads.copy_part, "partNumber"),
        Operation("UploadPart", "uploadId", _writes, uploads.upload_part, "partNumber"),
        Operation("CopyObject", COPY_SOURCE, _copies, objects.copy_object),
        Operation("PutObject", "", _writes, objects.put_object),
    ),
    "GET object": (
        Operation("ListParts", "uploadId", _writes, uploads.send_parts, _LIST_PARTS),
        Operation("GetObject", "", _reads, objects.get_object, _READ),
    ),
    "HEAD object": (Operation("HeadObject", "", _reads, objects.get_object, _READ),),
    "DELETE object": (
        Operation("AbortMultipartUpload", "uploadId", _writes, uploads.abort_upload),
        Operation("DeleteObject", "", _writes, objects.delete_object, "versionId"),
    ),
    "POST object": (
        Operation("CreateMultipartUpload", "uploads", _writes, uploads.create_upload),
        Operation("CompleteMultipartUpload", "uploadId", _writes, completion.complete_upload),
    ),
}
