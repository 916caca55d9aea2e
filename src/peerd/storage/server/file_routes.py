"""What clients ask for: put, get, head, list, move and delete files."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote, unquote

from sqlalchemy.engine import Connection

from peerd.domain.file_errors import InvalidFile
from peerd.domain.files import StoredFile
from peerd.domain.units import parse_duration
from peerd.storage.auditing import MOVE, REMOVE, auditor_of, state_of
from peerd.storage.awaiting import Steps
from peerd.storage.disk.digest import Digest
from peerd.storage.disk.open_disk import Piece
from peerd.storage.node import StorageNode
from peerd.storage.receiving import Received, Receiving
from peerd.storage.server.http_io import Request, Response
from peerd.storage.server.node_routes import BadRequest
from peerd.storage.server.ranges import (
    ContentRange,
    RangeNotSatisfiable,
    failed_condition,
    http_date,
    parse_range,
    range_still_holds,
    tags_of,
)
from peerd.storage.server.sending import next_pieces, send_pieces
from peerd.storage.serving import FileReading, find_digest
from peerd.store.files.buckets import get_bucket
from peerd.store.files.copies import Source
from peerd.store.files.listing import MAX_PAGE, find_with_sources, list_files
from peerd.store.files.versions import Condition, delete_file, move_file

METADATA: Final = "x-peerd-meta-"
MAX_METADATA: Final = 8 * 1024
MAX_AT_ONCE: Final = 256 * 1024
"""Bytes of a body that is held in memory until all of it is there."""


async def put(node: StorageNode, bucket: str, key: str, request: Request, response: Response) -> None:
    """Store the body as a file."""
    received = received_of(bucket, key, request)
    size = request.content_length
    if size is not None and size <= MAX_AT_ONCE:
        file = await node.awaited.carry_out(_put_at_once(node, received, await request.body(MAX_AT_ONCE)))
    else:
        file = await _put_as_it_comes(node, received, request)
    await response.json(file_as_json(file), 201, {"etag": f'"{file.etag or file.blake3}"'})


def _put_at_once(node: StorageNode, received: Received, body: bytes) -> Steps[StoredFile]:
    """Store a small body, in one visit to a thread unless copies are awaited."""
    with Receiving.begin(node, len(body)) as receiving:
        receiving.write(body)
        return (yield from receiving.finish(received))


async def _put_as_it_comes(node: StorageNode, received: Received, request: Request) -> StoredFile:
    receiving = await to_thread(Receiving.begin, node, request.content_length)
    try:
        await request.write_to(receiving.write)
        return await node.awaited.carry_out(receiving.finish(received))
    finally:
        await to_thread(receiving.close)


async def get(node: StorageNode, bucket: str, key: str, request: Request, response: Response) -> None:
    """Send a file, or a range of it."""
    answer = await to_thread(_answer_to_get, node, bucket, key, request)
    if answer.reading is None:
        if answer.status < HTTPStatus.MULTIPLE_CHOICES:  # of a HEAD: the length is that of the body of a GET
            await response.begin(answer.status, answer.headers)
            await response.end()
        else:
            await response.empty(answer.status, answer.headers.items())
        return
    try:
        await send_pieces(answer.pieces, answer.status, answer.headers, response, answer.first)
    finally:
        answer.reading.close()


@dataclass(frozen=True, slots=True)
class _GetAnswer:
    """What a GET is answered with.

    Attributes:
        status: of the response.
        headers: of the response.
        reading: the file that is read; None: there is no body.
        first: the pieces that were verified before the response begins.
        pieces: those after them.
    """

    status: int
    headers: dict[str, str | int]
    reading: FileReading | None = None
    first: list[Piece] = field(default_factory=list)
    pieces: Iterator[Piece] = field(default_factory=lambda: iter(()))


def _answer_to_get(node: StorageNode, bucket: str, key: str, request: Request) -> _GetAnswer:
    """Find the file and begin to read it, in one visit to the database and one to a thread."""
    is_head = request.method == "HEAD"

    def find(connection: Connection) -> tuple[StoredFile, tuple[Digest, list[Source]] | None]:
        file, sources = find_with_sources(connection, bucket, key)
        return file, None if is_head else (find_digest(connection, file), sources)

    file, found = node.database.read(find)
    tags = {tag for tag in (file.etag, file.blake3) if tag is not None}
    headers = _headers_of(file)
    if (status := failed_condition(request.headers, tags, file.created_at)) is not None:
        return _GetAnswer(status, headers)
    wanted = request.headers.get("range") if range_still_holds(request.headers, tags, file.created_at) else None
    try:
        part = parse_range(wanted, file.size)
    except RangeNotSatisfiable:
        return _GetAnswer(416, {"content-range": f"bytes */{file.size}"})
    start, stop = part or ContentRange(0, file.size)
    if part is not None:
        headers["content-range"] = f"bytes {start}-{stop - 1}/{file.size}"
    headers["content-length"] = stop - start
    status = 206 if part is not None else 200
    if found is None:
        return _GetAnswer(status, headers)
    reading = FileReading.of_found(node, file, *found)
    try:
        pieces = reading.pieces(start, stop)
        return _GetAnswer(status, headers, reading, next_pieces(pieces, 1), pieces)
    except BaseException:
        reading.close()
        raise


async def delete(node: StorageNode, bucket: str, key: str, request: Request, response: Response) -> None:
    """Delete a file; it is no error if there is none."""
    condition, auditor = _condition(request), auditor_of(request.query)

    def operation(connection: Connection) -> StoredFile | None:
        found = get_bucket(connection, bucket)
        deleted = delete_file(connection, found, key, condition)
        if deleted is not None:
            node.check(connection, [deleted.id], view)
            auditor.write(connection, REMOVE, f"{bucket}/{key}", state_of(deleted), None)
        return deleted

    view = await to_thread(node.view)
    if await to_thread(node.database.run, operation) is not None:
        node.ring()
    await response.empty(204)


async def move(node: StorageNode, bucket: str, key: str, request: Request, response: Response) -> None:
    """Give a file another key."""
    target, _, new_key = request.query.get("to", "").partition("/")
    if not target or not new_key:
        raise BadRequest("to: give BUCKET/KEY")
    auditor = auditor_of(request.query)

    def operation(connection: Connection) -> StoredFile:
        source = get_bucket(connection, bucket)
        moved = move_file(connection, (source, key), (get_bucket(connection, target), new_key))
        auditor.write(connection, MOVE, f"{bucket}/{key}", state_of(moved), None, to=f"{target}/{new_key}")
        return moved

    await response.json(file_as_json(await to_thread(node.database.run, operation)))


async def list_bucket(node: StorageNode, bucket: str, request: Request, response: Response) -> None:
    """Send a page of the files of a bucket."""
    query = request.query
    try:
        limit = min(int(query.get("limit", MAX_PAGE)), MAX_PAGE)
    except ValueError:
        raise BadRequest("limit: give a number") from None

    def operation(connection: Connection) -> Any:
        found = get_bucket(connection, bucket)
        prefix, after, delimiter = (query.get(name, "") for name in ("prefix", "after", "delimiter"))
        return list_files(connection, found, prefix=prefix, after=after, delimiter=delimiter, limit=max(1, limit))

    page = await to_thread(node.database.read, operation)
    files = [file_as_json(file) for file in page.files]
    await response.json({"files": files, "prefixes": page.prefixes, "next_after": page.next_after})


def file_as_json(file: StoredFile) -> dict[str, Any]:
    """A version as responses have it."""
    return {
        "id": f"{file.id:016x}",
        "bucket": file.bucket,
        "key": file.key,
        "version": file.version,
        "class": file.class_name,
        "size": file.size,
        "blake3": file.blake3,
        "etag": file.etag,
        "content_type": file.content_type,
        "metadata": file.metadata,
        "created_at": file.created_at.isoformat(),
        "expires_at": None if file.expires_at is None else file.expires_at.isoformat(),
    }


def _headers_of(file: StoredFile) -> dict[str, str | int]:
    headers: dict[str, str | int] = {
        "content-type": file.content_type or "application/octet-stream",
        "content-length": file.size,
        "accept-ranges": "bytes",
        "etag": f'"{file.etag or file.blake3}"',
        "last-modified": http_date(file.created_at),
        "x-peerd-blake3": file.blake3,
        "x-peerd-version": file.version,
        "x-content-type-options": "nosniff",
        "content-security-policy": "sandbox; default-src 'none'",
    }
    return headers | {f"{METADATA}{name}": quote(value, safe=" ") for name, value in file.metadata.items()}


def received_of(bucket: str, key: str, request: Request) -> Received:
    headers = request.headers
    metadata = {
        name.removeprefix(METADATA): unquote(value) for name, value in headers.items() if name.startswith(METADATA)
    }
    if sum(len(name) + len(value) for name, value in metadata.items()) > MAX_METADATA:
        raise InvalidFile("metadata", f"it is larger than {MAX_METADATA} bytes")
    try:
        expires_in = parse_duration(headers["x-peerd-expires-in"]) if "x-peerd-expires-in" in headers else None
    except ValueError as error:
        raise InvalidFile("expires_in", str(error)) from error
    content_type = headers.get("content-type")
    if content_type is not None and len(content_type) > 255:
        raise InvalidFile("content_type", "it is longer than 255 characters")
    return Received(
        bucket=bucket,
        key=key,
        class_name=headers.get("x-peerd-class"),
        content_type=content_type,
        metadata=metadata,
        expires_in=expires_in,
        blake3=headers.get("x-peerd-blake3"),
        condition=_condition(request),
        auditor=auditor_of(request.query),
    )


def _condition(request: Request) -> Condition:
    absent = tags_of(request.headers.get("if-none-match", "")) == {"*"}
    tags = tags_of(request.headers.get("if-match", ""))
    return Condition(is_absent=absent, tag=next(iter(tags)) if tags and tags != {"*"} else None)
