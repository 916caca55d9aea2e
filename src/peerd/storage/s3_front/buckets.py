"""Buckets and their lists."""

from __future__ import annotations

from asyncio import to_thread
from contextlib import suppress

from sqlalchemy.engine import Connection

from peerd.domain.file_errors import BucketExists, FileConditionFailed
from peerd.storage.auditing import REMOVE, state_of
from peerd.storage.s3 import documents, operations, responses
from peerd.storage.s3.errors import S3Code, S3Error
from peerd.storage.s3.responses import DEFAULT_REGION, BucketEntry, ListPage, ObjectEntry, S3Response
from peerd.storage.s3_front.access import may_delete
from peerd.storage.s3_front.exchange import OWNER, S3Exchange
from peerd.storage.s3_front.stored_objects import condition_on_tag, etag_of, storage_class_of
from peerd.storage.uploads import remove_contents
from peerd.store.files import buckets
from peerd.store.files.buckets import Bucket, get_bucket
from peerd.store.files.listing import list_files
from peerd.store.files.uploads import end_uploads
from peerd.store.files.versions import delete_file

DELETED_AT_ONCE = 50
"""Files in one transaction."""


async def list_buckets(exchange: S3Exchange, operation: operations.ListBuckets) -> None:
    """Send a page of the buckets that the access key sees."""
    seen = [
        BucketEntry(bucket.name, bucket.created_at)
        for bucket in await to_thread(exchange.node.database.read, buckets.list_buckets)
        if bucket.name > operation.after and bucket.name.startswith(operation.prefix)
        if exchange.key.sees_bucket(bucket.name)
    ]
    page = seen[: operation.max_buckets]
    next_after = page[-1].name if page and len(seen) > len(page) else None
    await exchange.send(responses.buckets_response(operation, page, OWNER, next_after))


async def create_bucket(exchange: S3Exchange, operation: operations.CreateBucket) -> None:
    """Create a bucket of the class `default`; one that is there remains as it is, as in the region us-east-1 of AWS."""
    region = documents.location_constraint(await exchange.document(documents.MAX_BUCKET_DOCUMENT))
    if region not in (None, DEFAULT_REGION):
        raise S3Error(S3Code.IllegalLocationConstraintException, f"the region of this server is {DEFAULT_REGION}")
    with suppress(BucketExists):
        await to_thread(exchange.node.database.run, buckets.create_bucket, operation.bucket)
    await exchange.send(responses.empty_response(location=f"/{operation.bucket}"))


async def delete_bucket(exchange: S3Exchange, operation: operations.DeleteBucket) -> None:
    """Delete a bucket without objects, and abort its uploads, which no list of objects has.

    Parts on disks of other nodes are swept there as unknown contents.
    """
    node = exchange.node

    def delete(connection: Connection) -> list[tuple[int, list[int]]]:
        ended = end_uploads(connection, get_bucket(connection, operation.bucket))
        buckets.delete_bucket(connection, operation.bucket)
        return ended

    for disk_id, contents in await to_thread(node.database.run, delete):
        if (disk := node.disks.find(disk_id)) is not None:
            await to_thread(remove_contents, disk, contents)
    await exchange.send(responses.empty_response(204))


async def head_bucket(exchange: S3Exchange, operation: operations.HeadBucket) -> None:
    """Send whether there is a bucket."""
    await _find(exchange, operation)
    await exchange.send(responses.empty_response(x_amz_bucket_region=DEFAULT_REGION))


async def get_location(exchange: S3Exchange, operation: operations.GetBucketLocation) -> None:
    """Send the region of a bucket."""
    await _find(exchange, operation)
    await exchange.send(responses.location_response(DEFAULT_REGION))


async def get_versioning(exchange: S3Exchange, operation: operations.GetBucketVersioning) -> None:
    """Send that a bucket keeps no versions."""
    await _find(exchange, operation)
    await exchange.send(responses.versioning_response())


async def list_objects(exchange: S3Exchange, operation: operations.ListObjects | operations.ListObjectsV2) -> None:
    """Send a page of the files of a bucket."""
    after = operation.after if isinstance(operation, operations.ListObjectsV2) else operation.marker

    def read(connection: Connection) -> ListPage:
        bucket = get_bucket(connection, operation.bucket)
        if not operation.max_keys:
            return ListPage()
        page = list_files(
            connection,
            bucket,
            prefix=operation.prefix,
            after=after,
            delimiter=operation.delimiter,
            limit=operation.max_keys,
        )
        entries = [
            ObjectEntry(
                key=file.key,
                size=file.size,
                etag=etag_of(file),
                modified=file.created_at,
                storage_class=storage_class_of(file.class_name, bucket),
            )
            for file in page.files
        ]
        return ListPage(objects=entries, prefixes=page.prefixes, next_after=page.next_after)

    page = await to_thread(exchange.node.database.read, read)
    answer: S3Response
    if isinstance(operation, operations.ListObjectsV2):
        answer = responses.objects_v2_response(operation, page, OWNER)
    elif isinstance(operation, operations.ListObjectVersions):
        answer = responses.versions_response(operation, page, OWNER)
    else:
        answer = responses.objects_response(operation, page, OWNER)
    await exchange.send(answer)


async def delete_objects(exchange: S3Exchange, operation: operations.DeleteObjects) -> None:
    """Delete files, each that the access key may delete."""
    document = await exchange.document(documents.MAX_DELETE_DOCUMENT)
    wanted = documents.objects_to_delete(document)
    bucket = await _find(exchange, operation)
    failed: dict[str, S3Error] = {one.key: one.error for one in wanted.objects if one.error is not None}
    for one in wanted.objects:
        if one.error is None and not may_delete(exchange.key, bucket.name, one.key):
            failed[one.key] = S3Error(S3Code.AccessDenied)
    permitted = sorted((one for one in wanted.objects if one.key not in failed), key=lambda one: one.key)
    for first in range(0, len(permitted), DELETED_AT_ONCE):
        failed |= await to_thread(_delete, exchange, bucket, permitted[first : first + DELETED_AT_ONCE])
    deleted = [one.key for one in wanted.objects if one.key not in failed]
    await exchange.send(responses.deleted_response(deleted, failed.items(), is_quiet=wanted.is_quiet))


def _delete(exchange: S3Exchange, bucket: Bucket, objects: list[documents.ObjectToDelete]) -> dict[str, S3Error]:
    """Delete files in one transaction; the errors of those whose condition does not hold."""
    node, view = exchange.node, exchange.node.view()

    def delete(connection: Connection) -> dict[str, S3Error]:
        failed: dict[str, S3Error] = {}
        deleted = []
        for one in objects:
            try:
                file = delete_file(connection, bucket, one.key, condition_on_tag(one.etag))
            except FileConditionFailed as error:  # it is raised before anything is written
                if not error.is_missing:
                    failed[one.key] = S3Error(S3Code.PreconditionFailed, str(error))
            else:
                if file is not None:
                    deleted.append(file.id)
                    exchange.auditor.write(connection, REMOVE, f"{file.bucket}/{file.key}", state_of(file), None)
        node.check(connection, deleted, view)
        return failed

    failed = node.database.run(delete)
    node.ring()
    return failed


async def _find(exchange: S3Exchange, operation: operations.BucketOperation) -> Bucket:
    return await to_thread(exchange.node.database.read, get_bucket, operation.bucket)
