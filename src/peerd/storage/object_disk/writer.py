"""A content while it is written to an object store: a small one by one request, a larger one by an upload in parts."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import AsyncIterator
from typing import Final, Self

from peerd.storage.disk.content_id import ContentId
from peerd.storage.disk.digest import CHUNKING, ContentHasher, ContentVerifier, Digest, refuse_difference
from peerd.storage.disk.errors import ContentMismatch, DiskError
from peerd.storage.object_disk.bucket import ObjectBucket
from peerd.storage.object_disk.errors import ObjectStoreError

MIB: Final = 1024 * 1024
SMALLEST_PART: Final = 8 * MIB
PART_OF_UNKNOWN: Final = 16 * MIB
"""Bytes of a part where the size of the content is not known: it can have 156 GiB."""
MOST_PARTS: Final = 9_000
"""Parts of an upload; object stores take 10,000."""
LOOKED_AT_EVERY: Final = 0.2
"""Seconds after which a writer that waits looks whether the upload has failed."""


def part_size(size: int | None) -> int:
    """Bytes of each part of an upload but the last one.

    >>> part_size(1), part_size(1024**4)
    (8388608, 122683392)
    """
    if size is None:
        return PART_OF_UNKNOWN
    return max(SMALLEST_PART, -(-size // (MOST_PARTS * MIB)) * MIB)


class ObjectWriter:
    """A content that is written to an object store; closed at the end of ``with``. Nothing of it can be resumed.

    One thread at a time may use it.

    Args:
        bucket: where it is written.
        name: of the object that it becomes.
        content: its id.
        size: its bytes, if they are known.
        expected: the digest that it must have, if it is known from the catalogue: then only that is verified.
    """

    def __init__(
        self,
        bucket: ObjectBucket,
        name: str,
        content: ContentId,
        size: int | None,
        expected: Digest | None = None,
    ) -> None:
        self.content = content
        self._bucket = bucket
        self._name = name
        self._size = size
        self._part_size = part_size(size)
        self._hasher = ContentHasher(CHUNKING, size) if expected is None else ContentVerifier(expected)
        self._buffer = bytearray()
        self._upload: _PartsUpload | None = None
        self._is_closed = False

    @property
    def position(self) -> int:
        """Bytes that are written."""
        return self._hasher.position

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes; those of a whole part are sent.

        Raises:
            ObjectStoreError: the upload has failed.
            ValueError: it is closed.
        """
        if self._is_closed:
            raise ValueError(f"the content {self.content} is closed")
        left = memoryview(data)
        self._hasher.update(left)
        while left:
            if len(self._buffer) == self._part_size:
                self._send_part()
            room = self._part_size - len(self._buffer)
            self._buffer += left[:room]
            left = left[room:]

    def _send_part(self) -> None:
        """Send what is a whole part; it is not copied."""
        if self._upload is None:
            self._upload = _PartsUpload(self._bucket, self._name, self._part_size)
        part, self._buffer = self._buffer, bytearray()
        self._upload.send(part)

    def checked_digest(self, expected: Digest | None) -> Digest:
        """The digest of what is written, if it may be published.

        Raises:
            ContentMismatch: it has other bytes than expected, or another size than announced.
        """
        if self._size is not None and self.position != self._size:
            problem = f"{self.position} bytes are written, announced were {self._size}"
            raise ContentMismatch(problem, content=str(self.content))
        if isinstance(self._hasher, ContentVerifier):
            self._hasher.refuse_difference(str(self.content))
            digest: Digest | None = self._hasher.expected
        else:
            digest = self._hasher.digest()
        if digest is None:  # its size was not known, and needs larger chunks
            problem = f"{self.position} bytes need larger chunks: announce the size of the content"
            raise ContentMismatch(problem, content=str(self.content))
        if expected is not None:
            refuse_difference(expected, digest, str(self.content))
        return digest

    def publish(self, expected: Digest | None = None) -> Digest:
        """Make it a content, and close it. Raises as `checked_digest`, and ObjectStoreError."""
        digest = self.checked_digest(expected)
        if self._upload is None:
            self._bucket.write(self._name, bytes(self._buffer))
        else:
            self._upload.send(self._buffer)
            self._upload.finish()
        self._is_closed = True
        self._buffer = bytearray()
        return digest

    def discard(self) -> None:
        """Abort it."""
        self.close()

    def close(self) -> None:
        """Abort it, if it is not published."""
        if not self._is_closed:
            self._is_closed = True
            self._buffer = bytearray()
            if self._upload is not None:
                self._upload.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _UploadAborted(Exception):
    """Raised into the upload, so that the object store forgets what was sent."""


class _PartsUpload:
    """An upload in parts, sent by a thread of its own.

    Args:
        bucket: where it is sent.
        name: of the object.
        size: of each part.
    """

    def __init__(self, bucket: ObjectBucket, name: str, size: int) -> None:
        self._parts: queue.Queue[bytearray | None] = queue.Queue(1)
        self._is_aborted = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(bucket, name, size), name="peerd-upload", daemon=True)
        self._thread.start()

    def send(self, part: bytearray | None) -> None:
        """Pass a part on, when the ones before it were taken. Raises ObjectStoreError."""
        while self._thread.is_alive():
            with contextlib.suppress(queue.Full):
                self._parts.put(part, timeout=LOOKED_AT_EVERY)
                return
        self._raise_failure()

    def finish(self) -> None:
        """End the upload: the object is there. Raises ObjectStoreError."""
        self.send(None)
        self._thread.join()
        self._raise_failure()

    def abort(self) -> None:
        """End the upload without an object."""
        self._is_aborted.set()
        self._thread.join()

    def _run(self, bucket: ObjectBucket, name: str, size: int) -> None:
        try:
            asyncio.run(bucket.write_stream(name, self._taken(), size))
        except BaseException as error:  # noqa: BLE001 - the writer raises it
            self._failure = error

    async def _taken(self) -> AsyncIterator[bytearray]:
        while (part := await asyncio.to_thread(self._next)) is not None:
            yield part

    def _next(self) -> bytearray | None:
        while not self._is_aborted.is_set():
            with contextlib.suppress(queue.Empty):
                return self._parts.get(timeout=LOOKED_AT_EVERY)
        raise _UploadAborted

    def _raise_failure(self) -> None:
        if isinstance(self._failure, DiskError):
            raise self._failure
        if self._failure is not None:
            raise ObjectStoreError("upload", "upload", type(self._failure).__name__) from self._failure
