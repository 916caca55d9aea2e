"""What other nodes ask for: one content from a byte on, or many small ones in one response."""

from __future__ import annotations

import contextlib
from typing import Final

import msgspec

from peerd.storage.awaiting import threads_of
from peerd.storage.disk.content_id import ContentId, parse_content_id
from peerd.storage.disk.errors import ContentMissing, RemoteDiskError
from peerd.storage.disk.open_disk import OpenContent
from peerd.storage.local_disks import LocalDisk
from peerd.storage.node import StorageNode
from peerd.storage.server.http_io import Request, Response, send_pieces
from peerd.storage.server.ranges import answer_with_range
from peerd.storage.transfer.frames import MAX_CONTENTS, MAX_SIZE, encode_head

MAX_REQUEST: Final = 32 * MAX_CONTENTS
READ_AT_ONCE: Final = 32
"""Contents that a thread reads before they are sent."""
GATHERED: Final = 256 * 1024
"""Bytes of small contents that are sent at once."""


class BadRequest(ValueError):
    """A request that no node sends."""


async def send_content(node: StorageNode, text: str, request: Request, response: Response) -> None:
    """Send a content, or a range of it; it is the receiver that verifies it."""
    content = _content_id(text)
    run = threads_of(node.sending)
    opened = await run(_open, node, content)
    if opened is None:
        await response.json({"error": f"node {node.name} has no content {content}"}, 404)
        return
    with opened:
        answer = answer_with_range(request.headers.get("range"), opened.size)
        if answer.part is None:
            await response.json({"error": "the range is behind the end"}, answer.status, answer.headers)
            return
        headers = {"content-type": "application/octet-stream", **answer.headers}
        await send_pieces(opened.pieces(*answer.part), answer.status, headers, request, response, run=run)


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
    gathered, run = bytearray(), threads_of(node.sending)
    reading = _SmallContents(node)
    for first in range(0, len(contents), READ_AT_ONCE):
        gathered += await run(reading.frames, contents[first : first + READ_AT_ONCE])
        if len(gathered) >= GATHERED:
            await response.bytes(gathered)
            gathered = bytearray()
    await response.bytes(gathered, is_last=True)


def _content_id(text: str) -> ContentId:
    try:
        return parse_content_id(text)
    except ValueError as error:
        raise BadRequest(str(error)) from error


def _open(node: StorageNode, content: ContentId) -> OpenContent | None:
    for disk in _readable(node):
        with contextlib.suppress(ContentMissing):
            return disk.opened.open(content)
    return None


class _SmallContents:
    """Small contents that are read for one request.

    A remote disk that cannot be read is left out from then on: each content would take as long to fail.

    Args:
        node: that has them.
    """

    def __init__(self, node: StorageNode) -> None:
        self._disks = _readable(node)
        self._is_unavailable = False

    def frames(self, contents: list[ContentId]) -> bytes:
        """The head of each content, and its bytes; what cannot be read, or is too large for many at once, has none."""
        found: dict[ContentId, bytes] = {}
        for disk in list(self._disks):
            missing = [content for content in contents if content not in found]
            if not missing:
                break
            try:
                found |= disk.opened.read_small(missing, MAX_SIZE)
            except RemoteDiskError:
                self._disks.remove(disk)
                self._is_unavailable = True
        pieces = []
        for content in contents:
            data = found.get(content)
            is_available = data is not None or not self._is_unavailable
            size = None if data is None else len(data)
            pieces += [encode_head(content.number, size, is_available=is_available), data or b""]
        return b"".join(pieces)


def _readable(node: StorageNode) -> list[LocalDisk]:
    """The disks in the order in which contents are looked for on them."""
    return sorted(node.disks.usable(), key=lambda disk: disk.opened.is_remote)
