"""What other nodes ask for: one content from a byte on, or many small ones in one response."""

from __future__ import annotations

import contextlib
import os
from asyncio import to_thread
from io import FileIO
from typing import Final

import msgspec

from peerd.storage.disk.content_id import ContentId, parse_content_id
from peerd.storage.disk.errors import ContentMissing, DiskError
from peerd.storage.node import StorageNode
from peerd.storage.server.http_io import Request, Response
from peerd.storage.server.ranges import ContentRange, RangeNotSatisfiable, parse_range
from peerd.storage.transfer.frames import MAX_CONTENTS, MAX_SIZE, encode_head

MAX_REQUEST: Final = 32 * MAX_CONTENTS
GATHERED: Final = 1024 * 1024
"""Bytes of small contents that are sent at once."""


class BadRequest(ValueError):
    """A request that no node sends."""


async def send_content(node: StorageNode, text: str, request: Request, response: Response) -> None:
    """Send a content, or a range of it; it is the receiver that verifies it."""
    content = _content_id(text)
    fd = await to_thread(_open, node, content)
    if fd is None:
        await response.json({"error": f"node {node.name} has no content {content}"}, 404)
        return
    try:
        await _send_range(fd, request, response)
    finally:
        os.close(fd)


async def send_many(node: StorageNode, body: bytes, response: Response) -> None:
    """Send small contents in the order of the request's body."""
    try:
        texts = msgspec.json.decode(body, type=list[str])
    except msgspec.MsgspecError as error:
        raise BadRequest(f"the body is no list of contents: {error}") from error
    if len(texts) > MAX_CONTENTS:
        raise BadRequest(f"at most {MAX_CONTENTS} contents are sent at once")
    contents = [_content_id(text) for text in texts]
    await response.begin(200, {"content-type": "application/octet-stream"})
    gathered = bytearray()
    for first in range(0, len(contents), 32):
        for frame in await to_thread(_read_frames, node, contents[first : first + 32]):
            gathered += frame
            if len(gathered) >= GATHERED:
                await response.bytes(gathered)
                gathered = bytearray()
    await response.bytes(gathered, is_last=True)


def _content_id(text: str) -> ContentId:
    try:
        return parse_content_id(text)
    except ValueError as error:
        raise BadRequest(str(error)) from error


def _open(node: StorageNode, content: ContentId) -> int | None:
    for disk in node.disks.usable():
        with contextlib.suppress(ContentMissing):
            return disk.folder.open_content(content)
    return None


async def _send_range(fd: int, request: Request, response: Response) -> None:
    size = os.fstat(fd).st_size
    try:
        part = parse_range(request.headers.get("range"), size)
    except RangeNotSatisfiable:
        await response.json({"error": "the range is behind the end"}, 416, {"content-range": f"bytes */{size}"})
        return
    start, stop = part or ContentRange(0, size)
    headers: dict[str, str | int] = {"content-type": "application/octet-stream", "content-length": stop - start}
    if part is not None:
        headers["content-range"] = f"bytes {start}-{stop - 1}/{size}"
    await response.begin(206 if part is not None else 200, headers)
    await response.file(FileIO(fd, closefd=False), start, stop - start, is_last=True)


def _read_frames(node: StorageNode, contents: list[ContentId]) -> list[bytes]:
    frames = []
    for content in contents:
        data = _read_small(node, content)
        frames.append(encode_head(content.number, None if data is None else len(data)))
        if data:
            frames.append(data)
    return frames


def _read_small(node: StorageNode, content: ContentId) -> bytes | None:
    """All of a content; None: it is missing, too large for many at once, or cannot be read."""
    try:
        fd = _open(node, content)
    except DiskError:
        return None
    if fd is None:
        return None
    try:
        size = os.fstat(fd).st_size
        data = os.pread(fd, size + 1, 0) if size <= MAX_SIZE else b""
    except OSError:
        return None
    finally:
        os.close(fd)
    return data if len(data) == size else None
