"""boto3 without a network: `peerd.storage.s3` verifies, reads and answers its requests, and boto3 reads the responses.
Objects are in memory: what is tested is the protocol."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import boto3
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.config import Config

from peerd.storage.s3 import documents, operations, responses
from peerd.storage.s3.bodies import BodyReader
from peerd.storage.s3.errors import S3Error, S3NoSuchBucket, S3NoSuchKey, S3NoSuchUpload
from peerd.storage.s3.http_request import S3HttpRequest
from peerd.storage.s3.requests import S3RequestParser
from peerd.storage.s3.responses import ListPage, ObjectEntry, PartEntry, S3Owner, S3Response, StoredObject, UploadEntry
from tests.storage.s3.signed_requests import HOST, KEY, REGION, SECRET, request_of, verifier

MODIFIED: Final = datetime(2026, 11, 26, 12, 30, 15, 250000, UTC)
OWNER: Final = S3Owner("owner-id", "films & <more>")
Operation = Any


class MemoryServer:
    """Buckets in memory. ``seen`` has the operations, ``requests`` the requests, in their order."""

    def __init__(self) -> None:
        self.buckets: dict[str, dict[str, tuple[StoredObject, bytes]]] = {}
        self.uploads: dict[str, tuple[str, dict[int, bytes]]] = {}
        self.seen: list[Operation] = []
        self.requests: list[S3HttpRequest] = []
        self._parser = S3RequestParser(HOST)

    def client(self, *, is_virtual: bool = False, scheme: str = "http", **settings: Any) -> Any:
        """A client of boto3 whose requests come here."""
        client = boto3.client(
            "s3",
            endpoint_url=f"{scheme}://{HOST}",
            region_name=REGION,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            config=Config(
                s3={"addressing_style": "virtual" if is_virtual else "path"},
                retries={"total_max_attempts": 1},
                **settings,
            ),
        )
        client.meta.events.register("before-send.s3", lambda request, **_: self.answer(request))
        return client

    def answer(self, prepared: AWSPreparedRequest) -> AWSResponse:
        """What a server does with a request of botocore, as it is before it is sent."""
        request, body = request_of(prepared), _body(prepared.body)
        try:
            response, content = self._respond(request, body)
        except S3Error as error:
            response, content = (
                responses.error_response(
                    error, resource=request.path.decode(), request_id="r1", is_head=request.method == "HEAD"
                ),
                b"",
            )
        raw = _Raw(response.body + content)
        return AWSResponse(prepared.url, response.status, dict(response.headers), raw)

    def _respond(self, request: S3HttpRequest, body: bytes) -> tuple[S3Response, bytes]:
        verified = verifier().verify(request, datetime.now(UTC))
        operation = self._parser.parse(request)
        self.requests.append(request)
        self.seen.append(operation)
        reader = BodyReader(
            request,
            verified,
            has_checksum_headers=not isinstance(operation, operations.CompleteMultipartUpload),
        )
        data = b"".join(reader.feed(body[place : place + 1000]) for place in range(0, len(body), 1000))
        digests = reader.finish()
        if isinstance(operation, operations.GetObject):
            stored, content = self._object(operation.bucket, operation.key)
            response = responses.object_response(operation, stored)
            return response, content[slice(*response.content)] if response.content else b""
        if isinstance(operation, operations.PutObject):
            stored = StoredObject(
                size=digests.size,
                etag=responses.etag_of_part(digests.md5),
                modified=MODIFIED,
                object_headers=operation.object_headers,
                checksums=digests.checksums,
            )
            self._bucket(operation.bucket)[operation.key] = (stored, data)
            return responses.put_response(stored.etag, digests.checksums), b""
        respond: Callable[[Operation, bytes], S3Response] = getattr(self, _method_of(operation))
        return respond(operation, data), b""

    def _bucket(self, name: str) -> dict[str, tuple[StoredObject, bytes]]:
        if name not in self.buckets:
            raise S3NoSuchBucket(BucketName=name)
        return self.buckets[name]

    def _object(self, bucket: str, key: str) -> tuple[StoredObject, bytes]:
        if key not in self._bucket(bucket):
            raise S3NoSuchKey(Key=key)
        return self.buckets[bucket][key]

    def _page(self, operation: operations.Listing, after: str, limit: int) -> ListPage:
        """The page of a list, as the reference of S3 describes it."""
        objects: list[ObjectEntry] = []
        prefixes: list[str] = []
        last = after
        for key in sorted(self._bucket(operation.bucket), key=str.encode):
            stored, _ = self.buckets[operation.bucket][key]
            if not key.startswith(operation.prefix):
                continue
            before, delimiter, _ = key[len(operation.prefix) :].partition(operation.delimiter or "\0")
            name = operation.prefix + before + delimiter
            if name.encode() <= after.encode() or (delimiter and name in prefixes):
                continue
            if len(objects) + len(prefixes) == limit:
                return ListPage(objects=objects, prefixes=prefixes, next_after=last)
            if delimiter:
                prefixes.append(name)
            else:
                objects.append(ObjectEntry(key=key, size=stored.size, etag=stored.etag, modified=stored.modified))
            last = name
        return ListPage(objects=objects, prefixes=prefixes)

    # ---------------------------------------------------------------- by the names of operations

    def _do_list_buckets(self, operation: operations.ListBuckets, _: bytes) -> S3Response:
        return responses.buckets_response(
            operation, [responses.BucketEntry(name, MODIFIED) for name in sorted(self.buckets)], OWNER
        )

    def _do_create_bucket(self, operation: operations.CreateBucket, data: bytes) -> S3Response:
        assert documents.location_constraint(data) in (None, "eu-west-1")
        self.buckets[operation.bucket] = {}
        return responses.empty_response(location=f"/{operation.bucket}")

    def _do_delete_bucket(self, operation: operations.DeleteBucket, _: bytes) -> S3Response:
        self._bucket(operation.bucket)
        del self.buckets[operation.bucket]
        return responses.empty_response(204)

    def _do_head_bucket(self, operation: operations.HeadBucket, _: bytes) -> S3Response:
        self._bucket(operation.bucket)
        return responses.empty_response(x_amz_bucket_region=REGION)

    def _do_get_bucket_location(self, _: operations.GetBucketLocation, __: bytes) -> S3Response:
        return responses.location_response("eu-west-1")

    def _do_get_bucket_versioning(self, _: operations.GetBucketVersioning, __: bytes) -> S3Response:
        return responses.versioning_response()

    def _do_list_objects(self, operation: operations.ListObjects, _: bytes) -> S3Response:
        return responses.objects_response(operation, self._page(operation, operation.marker, operation.max_keys), OWNER)

    def _do_list_objects_v2(self, operation: operations.ListObjectsV2, _: bytes) -> S3Response:
        page = self._page(operation, operation.after, operation.max_keys)
        return responses.objects_v2_response(operation, page, OWNER)

    def _do_delete_object(self, operation: operations.DeleteObject, _: bytes) -> S3Response:
        self._bucket(operation.bucket).pop(operation.key, None)
        return responses.empty_response(204)

    def _do_delete_objects(self, operation: operations.DeleteObjects, data: bytes) -> S3Response:
        wanted = documents.objects_to_delete(data)
        for one in wanted.objects:
            self._bucket(operation.bucket).pop(one.key, None)
        return responses.deleted_response(
            [one.key for one in wanted.objects if one.error is None],
            [(one.key, one.error) for one in wanted.objects if one.error is not None],
            is_quiet=wanted.is_quiet,
        )

    def _do_copy_object(self, operation: operations.CopyObject, _: bytes) -> S3Response:
        stored, content = self._object(operation.source.bucket, operation.source.key)
        operation.source.conditions.check(stored.etag, stored.modified)
        self._bucket(operation.bucket)[operation.key] = (stored, content)
        return responses.copied_response(stored.etag, MODIFIED)

    def _do_create_multipart_upload(self, operation: operations.CreateMultipartUpload, _: bytes) -> S3Response:
        upload_id = f"u{len(self.uploads)}"
        self.uploads[upload_id] = (operation.key, {})
        return responses.upload_response(operation, upload_id)

    def _parts(self, upload_id: str) -> dict[int, bytes]:
        if upload_id not in self.uploads:
            raise S3NoSuchUpload(UploadId=upload_id)
        return self.uploads[upload_id][1]

    def _do_upload_part(self, operation: operations.UploadPart, data: bytes) -> S3Response:
        self._parts(operation.upload_id)[operation.part_number] = data
        return responses.put_response(hashlib.md5(data).hexdigest())

    def _do_upload_part_copy(self, operation: operations.UploadPartCopy, _: bytes) -> S3Response:
        content = self._object(operation.source.bucket, operation.source.key)[1]
        if operation.range:
            content = content[slice(*operation.range.within(len(content)))]
        self._parts(operation.upload_id)[operation.part_number] = content
        return responses.copied_response(hashlib.md5(content).hexdigest(), MODIFIED, is_part=True)

    def _do_complete_multipart_upload(self, operation: operations.CompleteMultipartUpload, data: bytes) -> S3Response:
        parts = self._parts(operation.upload_id)
        chosen = [parts[part.number] for part in documents.completed_parts(data)]
        etag = responses.etag_of_upload([hashlib.md5(part).digest() for part in chosen])
        content = b"".join(chosen)
        stored = StoredObject(size=len(content), etag=etag, modified=MODIFIED)
        self._bucket(operation.bucket)[operation.key] = (stored, content)
        del self.uploads[operation.upload_id]
        return responses.completed_response(operation, etag, f"http://{HOST}/x")

    def _do_abort_multipart_upload(self, operation: operations.AbortMultipartUpload, _: bytes) -> S3Response:
        self._parts(operation.upload_id)
        del self.uploads[operation.upload_id]
        return responses.empty_response(204)

    def _do_list_parts(self, operation: operations.ListParts, _: bytes) -> S3Response:
        parts = [
            PartEntry(number=number, size=len(data), etag=hashlib.md5(data).hexdigest(), modified=MODIFIED)
            for number, data in sorted(self._parts(operation.upload_id).items())
            if number > operation.marker
        ]
        shown = parts[: operation.max_parts]
        return responses.parts_response(operation, shown, OWNER, is_truncated=len(shown) < len(parts))

    def _do_list_multipart_uploads(self, operation: operations.ListMultipartUploads, _: bytes) -> S3Response:
        uploads = [
            UploadEntry(key=key, upload_id=upload_id, begun=MODIFIED)
            for upload_id, (key, _) in sorted(self.uploads.items(), key=lambda item: (item[1][0], item[0]))
            if (key, upload_id) > (operation.key_marker, operation.upload_id_marker)
        ]
        shown = uploads[: operation.max_uploads]
        more = len(shown) < len(uploads)
        return responses.uploads_response(
            operation, shown, OWNER, next_after=(shown[-1].key, shown[-1].upload_id) if more else None
        )


def _method_of(operation: Operation) -> str:
    return "_do_" + re.sub("(?<=[a-z])(?=[A-Z])", "_", type(operation).__name__).lower()


class _Raw:
    """The body of a response, as botocore reads it."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def stream(self, *_: Any, **__: Any) -> Any:
        yield self._data

    def read(self, amt: int | None = None, **_: Any) -> bytes:
        data, self._data = (self._data, b"") if amt is None else (self._data[:amt], self._data[amt:])
        return data

    def close(self) -> None:
        pass


def _body(body: Any) -> bytes:
    if body is None:
        return b""
    if hasattr(body, "read"):
        data: bytes = body.read()
        return data
    return body if isinstance(body, bytes) else bytes(body)
