"""The protocol of uploads in parts: what requests may say, and what answers say, of nodes and of servers."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec

from peerd.domain.files import StoredFile
from peerd.storage.file_headers import PutTarget, file_as_json, put_headers

DIGEST: Final = 32
"""Bytes of the BLAKE3 behind those of a part: so its client reads its source once."""
MAX_PART: Final = 1024**3
MAX_SIZE: Final = 2**50
UPLOAD_ID: Final = "[0-9a-f]{32}"
SOURCE: Final = "[0-9a-z-]{1,100}"
BLAKE3: Final = "[0-9a-f]{64}"
"""In hex."""


class UploadState(msgspec.Struct, frozen=True):
    """An upload in parts, as a node or a server answers about it.

    Attributes:
        id: 32 hex digits.
        received: bytes that are durable.
        source: by which its client finds it again.
        is_lost: whether its disk was declared lost, so that nothing can be added to it.
        file: that it has become.
    """

    id: str
    received: int = 0
    source: str | None = None
    is_lost: bool = False
    file: StoredFile | None = None


def upload_as_json(upload: UploadState) -> dict[str, Any]:
    """An upload as answers have it."""
    file = None if upload.file is None else file_as_json(upload.file)
    return {"id": upload.id, "received": upload.received, "file": file}


def path_of(kind: str, bucket: str, key: str) -> str:
    """The path of a file in requests about ``files`` or ``uploads``.

    >>> path_of("files", "films", "2026/a b.mov")
    '/files/films/2026%2Fa%20b.mov'
    """
    return f"/{kind}/{quote(bucket, safe='')}/{quote(key, safe='')}"


def begin_path(target: PutTarget, **more: str | int | None) -> str:
    """The path and the query of a request that begins an upload."""
    query = urlencode({name: value for name, value in more.items() if value is not None})
    return f"{path_of('uploads', target.bucket, target.key)}?{query}"


def begin_headers(target: PutTarget) -> dict[str, str]:
    """The headers of a request that begins an upload; its size is in the query, and its BLAKE3 in the completion."""
    return put_headers(msgspec.structs.replace(target.options, size=None, blake3=None))
