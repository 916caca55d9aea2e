"""Buckets and their lists."""

from __future__ import annotations

from asyncio import to_thread
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Final

from sqlalchemy.engine import Connection

from peerd.domain.file_errors import BucketExists, FileConditionFailed
from peerd.storage.auditing import REMOVE, state_of
from peerd.storage.s3 import documents
from peerd.storage.s3.documents import XmlChild, readable
from peerd.storage.s3.errors import S3Code, S3Error
from peerd.storage.s3.requests import Listing
from peerd.storage.s3.signature import REGION
from peerd.storage.s3_front.exchange import S3Exchange, S3Response, document_response
from peerd.storage.s3_front.stored_objects import OWNER, condition_on_tag, etag_of, quoted_etag, storage_class_of
from peerd.storage.uploads import remove_contents
from peerd.store.files import buckets
from peerd.store.files.buckets import Bucket, get_bucket
from peerd.store.files.listing import FileList, list_files
from peerd.store.files.uploads import end_uploads
from peerd.store.files.versions import delete_file

DELETED_AT_ONCE: Final = 50
"""Files in one transaction."""
NULL_VERSION: Final = "null"
"""The version of an object in a bucket without versions."""


async def list_buckets(exchange: S3Exchange) -> None:
    """Send a page of the buckets that the access key sees."""
    request = exchange.request
    prefix, limit = request.text("prefix"), request.limit("max-buckets", 10_000)
    token = request.text("continuation-token")
    after = after_token(token) if token else ""
    seen = [
        bucket
        for bucket in await to_thread(exchange.node.database.read, buckets.list_buckets)
        if bucket.name > after and bucket.name.startswith(prefix)
        if exchange.key.sees_bucket(bucket.name)
    ]
    page = seen[:limit]
    rows: list[XmlChild] = [("Bucket", [("Name", bucket.name), ("CreationDate", bucket.created_at)]) for bucket in page]
    content: list[XmlChild] = [
        ("Owner", OWNER),
        ("Buckets", rows),
        ("Prefix", prefix or None),
        ("ContinuationToken", token_after(page[-1].name) if page and len(seen) > len(page) else None),
    ]
    await exchange.send(document_response("ListAllMyBucketsResult", content))


async def create_bucket(exchange: S3Exchange) -> None:
    """Create a bucket of the class `default`; one that is there remains as it is, as in the region us-east-1 of AWS."""
    region = documents.location_constraint(await exchange.document(documents.MAX_BUCKET_DOCUMENT))
    if region not in (None, REGION):
        raise S3Error(S3Code.IllegalLocationConstraintException, f"the region of this server is {REGION}")
    name = exchange.request.bucket
    with suppress(BucketExists):
        await to_thread(exchange.node.database.run, buckets.create_bucket, name)
    await exchange.send(S3Response(headers={"location": f"/{name}"}))


async def delete_bucket(exchange: S3Exchange) -> None:
    """Delete a bucket without objects, and abort its uploads, which no list of objects has.

    Parts on disks of other nodes are swept there as unknown contents.
    """
    node, name = exchange.node, exchange.request.bucket

    def delete(connection: Connection) -> list[tuple[int, list[int]]]:
        ended = end_uploads(connection, get_bucket(connection, name))
        buckets.delete_bucket(connection, name)
        return ended

    for disk_id, contents in await to_thread(node.database.run, delete):
        if (disk := node.disks.find(disk_id)) is not None:
            await to_thread(remove_contents, disk, contents)
    await exchange.send(S3Response(status=204))


async def head_bucket(exchange: S3Exchange) -> None:
    """Send whether there is a bucket."""
    await _find(exchange)
    await exchange.send(S3Response(headers={"x-amz-bucket-region": REGION}))


async def get_location(exchange: S3Exchange) -> None:
    """Send the region of a bucket."""
    await _find(exchange)
    await exchange.send(document_response("LocationConstraint"))


async def get_versioning(exchange: S3Exchange) -> None:
    """Send that a bucket keeps no versions."""
    await _find(exchange)
    await exchange.send(document_response("VersioningConfiguration"))


async def list_objects(exchange: S3Exchange) -> None:
    """Send a page of the files of a bucket. The next marker is sent also without a delimiter, which clients may use."""
    listing, marker = exchange.request.listing("max-keys"), exchange.request.text("marker")
    bucket, page = await to_thread(_find_page, exchange, listing, marker)
    head = [
        *listing_elements(listing, bucket, page),
        ("Marker", listing.encoded(marker)),
        ("NextMarker", listing.encoded(page.next_after)),
    ]
    objects = object_elements(listing, bucket, page, owner=OWNER)
    await exchange.send(document_response("ListBucketResult", chain(head, objects)))


async def list_objects_v2(exchange: S3Exchange) -> None:
    """Send a page of the files of a bucket: those behind the continuation token, else behind a key."""
    request = exchange.request
    if request.text("list-type") != "2":
        raise S3Error(S3Code.InvalidArgument, "list-type must be 2", ArgumentName="list-type")
    listing, start_after = request.listing("max-keys"), request.text("start-after")
    token = request.text("continuation-token") if "continuation-token" in request.parameter_names else None
    owner = OWNER if request.text("fetch-owner") == "true" else None
    bucket, page = await to_thread(_find_page, exchange, listing, start_after if token is None else after_token(token))
    head = [
        *listing_elements(listing, bucket, page),
        ("KeyCount", len(page.files) + len(page.prefixes)),
        ("ContinuationToken", token),
        ("NextContinuationToken", None if page.next_after is None else token_after(page.next_after)),
        ("StartAfter", listing.encoded(start_after or None)),
    ]
    objects = object_elements(listing, bucket, page, owner=owner)
    await exchange.send(document_response("ListBucketResult", chain(head, objects)))


async def list_versions(exchange: S3Exchange) -> None:
    """Send a page of the files of a bucket as versions: it never had several, so each object is its only one."""
    request = exchange.request
    listing, marker = request.listing("max-keys"), request.text("key-marker")
    version_marker = request.text("version-id-marker") or None
    bucket, page = await to_thread(_find_page, exchange, listing, marker)
    only = ("VersionId", NULL_VERSION), ("IsLatest", True)
    head = [
        *listing_elements(listing, bucket, page),
        ("KeyMarker", listing.encoded(marker)),
        ("VersionIdMarker", version_marker),
        ("NextKeyMarker", listing.encoded(page.next_after)),
        ("NextVersionIdMarker", None if page.next_after is None else NULL_VERSION),
    ]
    objects = object_elements(listing, bucket, page, "Version", only, owner=OWNER)
    await exchange.send(document_response("ListVersionsResult", chain(head, objects)))


async def delete_objects(exchange: S3Exchange) -> None:
    """Delete files, each that the access key may delete.

    A client could read nothing of the response if a key had a character that XML does not have, so another one is in
    its place.
    """
    document = await exchange.document(documents.MAX_DELETE_DOCUMENT)
    wanted = documents.objects_to_delete(document)
    bucket, key = await _find(exchange), exchange.key
    failed: dict[str, S3Error] = {one.key: one.error for one in wanted.objects if one.error is not None}
    for one in wanted.objects:
        if one.error is None and not (key.rights.can_write and key.has_key(bucket.name, one.key)):
            failed[one.key] = S3Error(S3Code.AccessDenied)
    permitted = sorted((one for one in wanted.objects if one.key not in failed), key=lambda one: one.key)
    for first in range(0, len(permitted), DELETED_AT_ONCE):
        failed |= await to_thread(_delete, exchange, bucket, permitted[first : first + DELETED_AT_ONCE])
    deleted = [one.key for one in wanted.objects if one.key not in failed and not wanted.is_quiet]
    content: list[XmlChild] = [("Deleted", [("Key", readable(name))]) for name in deleted]
    content += [
        ("Error", [("Key", readable(name)), ("Code", error.code.name), ("Message", readable(str(error)))])
        for name, error in failed.items()
    ]
    await exchange.send(document_response("DeleteResult", content))


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


async def _find(exchange: S3Exchange) -> Bucket:
    return await to_thread(exchange.node.database.read, get_bucket, exchange.request.bucket)


# ---------------------------------------------------------------- pages of a list


def _find_page(exchange: S3Exchange, listing: Listing, after: str) -> tuple[Bucket, FileList]:
    """The bucket, and the files of it that follow a key."""

    def read(connection: Connection) -> tuple[Bucket, FileList]:
        bucket = get_bucket(connection, exchange.request.bucket)
        if not listing.limit:
            return bucket, FileList([], [])
        return bucket, list_files(
            connection,
            bucket,
            prefix=listing.prefix,
            after=after,
            delimiter=listing.delimiter,
            limit=listing.limit,
        )

    return exchange.node.database.read(read)


def listing_elements(listing: Listing, bucket: Bucket, page: FileList) -> list[XmlChild]:
    """What all lists of objects begin with."""
    return [
        ("Name", bucket.name),
        ("Prefix", listing.encoded(listing.prefix)),
        ("Delimiter", listing.encoded(listing.delimiter or None)),
        ("EncodingType", listing.encoding),
        ("MaxKeys", listing.limit),
        ("IsTruncated", page.next_after is not None),
    ]


def object_elements(
    listing: Listing,
    bucket: Bucket,
    page: FileList,
    name: str = "Contents",
    more: Sequence[XmlChild] = (),
    *,
    owner: Sequence[XmlChild] | None,
) -> Iterator[XmlChild]:
    """The objects of a page, each an element with this name, and its common prefixes; ``more`` follows each key."""
    for file in page.files:  # one at a time: a page of nested lists would keep the garbage collector busy
        content = [
            ("Key", listing.encoded(file.key)),
            *more,
            ("LastModified", file.created_at),
            ("ETag", quoted_etag(etag_of(file))),
            ("Size", file.size),
            ("Owner", owner),
            ("StorageClass", storage_class_of(file.class_name, bucket)),
        ]
        yield name, content
    yield from prefix_elements(listing, page.prefixes)


def prefix_elements(listing: Listing, prefixes: Sequence[str]) -> Iterator[XmlChild]:
    """The common prefixes of a page."""
    return (("CommonPrefixes", [("Prefix", listing.encoded(prefix))]) for prefix in prefixes)


def token_after(after: str) -> str:
    """The continuation token of a list that goes on behind ``after``.

    >>> after_token(token_after("films/ä"))
    'films/ä'
    """
    return urlsafe_b64encode(b"1" + after.encode()).decode()


def after_token(token: str) -> str:
    """What `token_after` has made a token of. Raises S3Error: InvalidArgument for another text."""
    try:
        data = urlsafe_b64decode(token.encode("ascii"))
        after = data[1:].decode()
    except (Base64Error, ValueError) as error:
        raise S3Error(S3Code.InvalidArgument, "the continuation token is not one of this server") from error
    if data[:1] != b"1" or "\0" in after or token_after(after) != token:
        raise S3Error(S3Code.InvalidArgument, "the continuation token is not one of this server")
    return after
