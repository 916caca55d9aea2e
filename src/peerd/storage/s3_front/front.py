"""What the storage server does with a request of S3: verify, permit, do, answer; errors as S3 words them."""

from __future__ import annotations

import re
import secrets
from asyncio import to_thread
from collections.abc import Mapping
from typing import Any, Final

from peerd.storage.node import StorageNode
from peerd.storage.s3 import operations
from peerd.storage.s3.http_request import S3HttpRequest
from peerd.storage.s3.responses import error_response
from peerd.storage.s3_front import buckets, objects, uploads
from peerd.storage.s3_front.access import admit
from peerd.storage.s3_front.exchange import S3Exchange, drain, send_response
from peerd.storage.s3_front.failures import as_s3_error
from peerd.storage.server.http_io import ClientGone, Request, Response
from peerd.storage.transfer.node_signature import HEADER

_OF_NODES: Final = frozenset({"contents", "files", "uploads", "health"})
_SIGNED_QUERY: Final = re.compile(rb"(^|&)(X-Amz-(Algorithm|Credential|Signature)|AWSAccessKeyId)=")

_HANDLERS: Final[Mapping[type[operations.S3Operation], Any]] = {
    operations.ListBuckets: buckets.list_buckets,
    operations.CreateBucket: buckets.create_bucket,
    operations.DeleteBucket: buckets.delete_bucket,
    operations.HeadBucket: buckets.head_bucket,
    operations.GetBucketLocation: buckets.get_location,
    operations.GetBucketVersioning: buckets.get_versioning,
    operations.ListObjects: buckets.list_objects,
    operations.ListObjectsV2: buckets.list_objects,
    operations.ListObjectVersions: buckets.list_objects,
    operations.DeleteObjects: buckets.delete_objects,
    operations.PutObject: objects.put_object,
    operations.CopyObject: objects.copy_object,
    operations.GetObject: objects.get_object,
    operations.HeadObject: objects.get_object,
    operations.DeleteObject: objects.delete_object,
    operations.CreateMultipartUpload: uploads.create_upload,
    operations.UploadPart: uploads.upload_part,
    operations.UploadPartCopy: uploads.copy_part,
    operations.CompleteMultipartUpload: uploads.complete_upload,
    operations.AbortMultipartUpload: uploads.abort_upload,
    operations.ListParts: uploads.send_parts,
    operations.ListMultipartUploads: uploads.send_uploads,
}


def is_s3_request(request: Request) -> bool:
    """Whether a request is for S3: it has a signature of AWS, or a path that nodes do not have."""
    if request.headers.get("authorization", "").startswith("AWS"):
        return True
    if _SIGNED_QUERY.search(request.scope["query_string"]):
        return True
    kind = request.scope["raw_path"].decode("latin-1").lstrip("/").partition("/")[0]
    return kind not in _OF_NODES and HEADER not in request.headers


async def serve_s3(node: StorageNode, request: Request, response: Response) -> None:
    """Answer a request of S3.

    Raises:
        ClientGone: the client has closed the connection.
    """
    request_id = secrets.token_hex(8).upper()
    try:
        await _serve(node, request, response, request_id)
    except ClientGone:
        raise
    except Exception as error:
        failure = as_s3_error(error)
        if failure is None or response.has_begun:
            raise
        path = request.scope["raw_path"].decode("latin-1")
        is_head = request.method == "HEAD"
        answer = error_response(failure, resource=path, request_id=request_id, is_head=is_head)
        await send_response(response, answer, request_id, closes=not await drain(request))


async def _serve(node: StorageNode, request: Request, response: Response, request_id: str) -> None:
    scope = request.scope
    http = S3HttpRequest(request.method, scope["raw_path"], scope["query_string"], scope["headers"])
    if HEADER in request.headers:  # relayed by another node
        node.verifier.verify(request.method, request.target, request.headers)
    admitted = await to_thread(admit, node, http)
    exchange = S3Exchange(node, admitted.key, admitted.verified, http, request, response, request_id)
    await _HANDLERS[type(admitted.operation)](exchange, admitted.operation)
