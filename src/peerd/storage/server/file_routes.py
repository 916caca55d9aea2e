"""What clients ask for: put, get, head, list, move and delete files."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Final

from sqlalchemy.engine import Connection

from peerd.domain.files import StoredFile
from peerd.storage.auditing import MOVE, REMOVE, auditor_of, state_of
from peerd.storage.awaiting import Steps
from peerd.storage.disk.open_disk import Piece
from peerd.storage.file_headers import file_as_json, options_of
from peerd.storage.node import StorageNode
from peerd.storage.receiving import Received, Receiving
from peerd.storage.server.http_io import Request, Response, next_pieces, send_pieces
from peerd.storage.server.node_routes import BadRequest
from peerd.storage.server.ranges import ANY, Conditions, ContentAnswer, answer_to_get, headers_of
from peerd.storage.serving import FileReading, find_to_serve
from peerd.store.files.buckets import get_bucket
from peerd.store.files.listing import MAX_PAGE, list_files
from peerd.store.files.versions import Condition, delete_file, move_file

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
    answer, body = await to_thread(_answer_to_get, node, bucket, key, request)
    if body is not None:
        reading, first, pieces = body
        try:
            await send_pieces(pieces, answer.status, answer.headers, request, response, first)
        finally:
            reading.close()
    elif answer.part is not None:  # of a HEAD: the length of the body of a GET
        await response.begin(answer.status, answer.headers)
        await response.end()
    else:
        await response.empty(answer.status, answer.headers)


def _answer_to_get(
    node: StorageNode, bucket: str, key: str, request: Request
) -> tuple[ContentAnswer, tuple[FileReading, list[Piece], Iterator[Piece]] | None]:
    """How a GET is answered, in one visit to the database and one to a thread.

    Returns:
        the head, and the file that is read for the body, the pieces of it that were verified before the response
        begins, and those after them.
    """
    file, found = node.database.read(find_to_serve, bucket, key, is_head=request.method == "HEAD")
    answer = answer_to_get(request.method, request.headers, file)
    if answer.status is not HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        more = {**headers_of(file), "x-content-type-options": "nosniff", **answer.headers}
        answer = answer._replace(headers=more)
    if found is None or answer.part is None:
        return answer, None
    reading = FileReading.of_found(node, file, *found)
    try:
        pieces = reading.pieces(*answer.part)
        return answer, (reading, next_pieces(pieces, 1), pieces)
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


def received_of(bucket: str, key: str, request: Request) -> Received:
    """What the headers of a put say of its file. Raises InvalidFile."""
    options = options_of(request.headers)
    return Received(
        bucket=bucket,
        key=key,
        class_name=options.class_name,
        content_type=options.content_type,
        metadata=options.metadata,
        expires_in=options.expires_in,
        blake3=options.blake3,
        condition=_condition(request),
        auditor=auditor_of(request.query),
    )


def _condition(request: Request) -> Condition:
    wanted = Conditions.of(request.headers.get)
    if wanted.if_none_match not in (None, (ANY,)):
        raise BadRequest("if-none-match: a change knows * alone")
    if wanted.if_match is not None and (len(wanted.if_match) != 1 or ANY in wanted.if_match):
        raise BadRequest("if-match: a change knows one entity tag alone")
    [tag] = wanted.if_match or (None,)
    return Condition(is_absent=wanted.if_none_match is not None, tag=tag)
