"""What clients ask for to put a file in parts that can be resumed: begin, show, put a part, complete, abort."""

from __future__ import annotations

import asyncio
import re
from asyncio import to_thread
from typing import Final

from peerd.domain.file_errors import UploadGone
from peerd.storage import resumable
from peerd.storage.auditing import auditor_of
from peerd.storage.awaiting import threads_of
from peerd.storage.node import StorageNode
from peerd.storage.resumable import PartOfUpload
from peerd.storage.server.file_routes import received_of
from peerd.storage.server.http_io import Request, Response
from peerd.storage.server.node_routes import BadRequest
from peerd.storage.upload_protocol import (
    BLAKE3,
    DIGEST,
    MAX_PART,
    MAX_SIZE,
    SOURCE,
    UPLOAD_ID,
    UploadState,
    upload_as_json,
)
from peerd.store.files.uploads import Upload, get_resumable

COMPLETED_WITHIN: Final = 15.0
"""Seconds until a completion that still runs is answered; its client asks again."""
_NUMBER: Final = re.compile(r"[0-9]{1,16}")


async def begin(node: StorageNode, bucket: str, key: str, request: Request, response: Response) -> None:
    """Begin an upload, whose headers are those of a put; `size` in the query is of the whole, if it is known."""
    received = received_of(bucket, key, request)
    size = _number(request, "size", MAX_SIZE) if "size" in request.query else None
    source = request.query.get("source")
    if source is not None and not re.fullmatch(SOURCE, source):
        raise BadRequest("source: give 1 to 100 of a-z, 0-9 and -")
    upload = await to_thread(resumable.begin_upload, node, received, size, source)
    await response.json(upload_as_json(UploadState(upload.id)), 201)


async def show(node: StorageNode, upload_id: str, _request: Request, response: Response) -> None:
    """Show an upload: how many of its bytes are durable."""
    upload = await to_thread(_find, node, upload_id)
    await response.json(upload_as_json(UploadState(upload.id, upload.received)))


async def put_part(node: StorageNode, upload_id: str, request: Request, response: Response) -> None:
    """Append a part: the body is its bytes, and the 32 bytes of their BLAKE3; `offset` in the query is where it begins.

    The response says how many bytes are durable now.
    """
    offset, length = _number(request, "offset", MAX_SIZE), request.content_length
    if length is None or not DIGEST < length <= MAX_PART + DIGEST:
        raise BadRequest(f"content-length: a part has 1 to {MAX_PART:,} bytes, and {DIGEST} of their BLAKE3")
    part = await to_thread(PartOfUpload.begin, node, _checked_id(upload_id), offset, length - DIGEST)
    try:
        await request.write_to(part.write)
        received = await to_thread(part.finish)
    finally:
        await to_thread(part.close)
    await response.json(upload_as_json(UploadState(upload_id, received)))


async def complete(node: StorageNode, upload_id: str, request: Request, response: Response) -> None:
    """Make a file of an upload of `size` bytes with the BLAKE3 `blake3`; 202 while that still runs."""
    size, digest = _number(request, "size", MAX_SIZE), request.query.get("blake3", "").lower()
    if not re.fullmatch(BLAKE3, digest):
        raise BadRequest("blake3: give the 64 hexadecimal digits of the BLAKE3 of the whole")
    checked, auditor = _checked_id(upload_id), auditor_of(request.query)
    run = threads_of(node.running_uploads.threads)
    waiting = node.running_uploads.complete(
        (checked, digest),
        lambda: node.awaited.carry_out(resumable.complete(node, checked, size, digest, auditor), run),
    )
    await asyncio.wait([waiting], timeout=COMPLETED_WITHIN)
    if not waiting.done():
        await response.json(upload_as_json(UploadState(upload_id, size)), 202)
        return
    file = waiting.result()
    await response.json(upload_as_json(UploadState(upload_id, size, file=file)), 201)


async def abort(node: StorageNode, upload_id: str, _request: Request, response: Response) -> None:
    """Abort an upload, and remove its bytes."""
    upload = await to_thread(_find, node, upload_id)
    await to_thread(resumable.abort, node, upload)
    await response.empty(204)


def _find(node: StorageNode, upload_id: str) -> Upload:
    return node.database.read(get_resumable, _checked_id(upload_id))


def _checked_id(text: str) -> str:
    """An id of an upload. Raises UploadGone for what can be none."""
    if not re.fullmatch(UPLOAD_ID, text):
        raise UploadGone(text[:64])
    return text


def _number(request: Request, name: str, most: int) -> int:
    text = request.query.get(name, "")
    if not _NUMBER.fullmatch(text) or int(text) > most:
        raise BadRequest(f"{name}: give a number of bytes, at most {most:,}")
    return int(text)
