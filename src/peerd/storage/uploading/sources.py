"""What is sent in parts: files, which can be read again, and streams, which cannot."""

from __future__ import annotations

import io
import json
import os
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final, cast

from blake3 import blake3

from peerd.domain.files import StoredFile
from peerd.storage.file_headers import PutOptions
from peerd.storage.put_body import BLOCK, Progress

MIB: Final = 1024**2
FILE_PART: Final = 32 * MIB
"""Bytes of the first parts of a file, and the least."""
MOST_OF_PART: Final = 1024 * MIB
PART_TAKES: Final = 3.0
"""Seconds: after a part that took less, the next one is twice as large. So a fast disk seldom waits for an fsync and a
commit, and not much more than these seconds are sent again after a failure."""
STREAM_PART: Final = 16 * MIB
"""Bytes of each part of a stream, which are in memory."""


class UploadSourceChanged(Exception):
    """A file has changed since its upload was begun."""


class PartSource(ABC):
    """What is sent in parts, in order, and hashed on the way.

    Attributes:
        size: bytes, if they are known.
    """

    size: int | None = None

    @abstractmethod
    def is_ended(self, received: int) -> bool:
        """Whether there is no byte behind those that were received. Raises OSError."""

    @abstractmethod
    def part(self, received: int) -> tuple[int, Iterator[bytes]]:
        """The next part: how many bytes it has, and these, with their BLAKE3 behind them.

        Raises:
            UploadSourceChanged: it is not what it was.
        """

    @abstractmethod
    def accept(self, received: int) -> None:
        """The bytes to here are durable."""

    @abstractmethod
    def digest(self) -> str:
        """The BLAKE3 of all bytes, in hex."""


class FileSource(PartSource):
    """A regular file.

    Args:
        path: of it.
        opened: without a buffer.
        options: what is stored with it; an upload with others is another one.
        progress: called while it is sent.
    """

    def __init__(self, path: Path, opened: IO[bytes], options: PutOptions, progress: Progress | None) -> None:
        self._opened = cast("io.FileIO", opened)
        self._path = path
        self._options = options
        self._progress = progress
        self._buffer = memoryview(bytearray(BLOCK))
        self.look()

    def look(self) -> None:
        """Take the file as it is now, from its beginning."""
        status = os.fstat(self._opened.fileno())
        self.size: int = status.st_size
        self._changed_at = status.st_mtime_ns
        self._whole, self._hashed = blake3(), 0
        self._next: tuple[Any, int] | None = None
        self._part_size = FILE_PART
        self._part_begun = 0.0

    @property
    def name(self) -> str:
        """By which its upload is found again: of the file, and of its state and what is stored with it."""
        options = self._options
        state = json.dumps([
            self.size, self._changed_at, options.class_name, options.content_type, sorted(options.metadata.items()),
            options.expires_in, options.only_new,
        ])  # fmt: skip
        origin = f"{socket.gethostname()}:{self._path.absolute()}"
        return f"{_short_hash(origin)[:16]}-{_short_hash(state)}"

    def is_ended(self, received: int) -> bool:
        if received < self.size:
            return False
        self._hash_to(received)
        self._refuse_change()
        return True

    def part(self, received: int) -> tuple[int, Iterator[bytes]]:
        self._hash_to(received)
        self._refuse_change()
        count = min(self._part_size, self.size - received)
        self._part_begun = time.monotonic()
        return count, self._blocks(received, count)

    def _blocks(self, start: int, count: int) -> Iterator[bytes]:
        whole, digest, sent = self._whole.copy(), blake3(), 0
        while sent < count:
            data = self._read(start + sent, count - sent)
            whole.update(data)
            digest.update(data)
            sent += len(data)
            yield cast("bytes", data)
            if self._progress is not None:
                self._progress(start + sent, self.size)
        self._next = whole, start + sent
        yield digest.digest()

    def accept(self, received: int) -> None:
        if self._next is not None and self._next[1] == received:
            self._whole, self._hashed = self._next
        self._next = None
        took = time.monotonic() - self._part_begun
        if took < PART_TAKES:
            self._part_size = min(MOST_OF_PART, self._part_size * 2)
        elif took > 2 * PART_TAKES:
            self._part_size = max(FILE_PART, self._part_size // 2)

    def digest(self) -> str:
        return str(self._whole.hexdigest())

    def is_all_of(self, stored: StoredFile) -> bool:
        """Whether a version has the bytes of this file; it is read to its end."""
        if stored.size != self.size:
            return False
        self._hash_to(self.size)
        return self.digest() == stored.blake3

    def _hash_to(self, position: int) -> None:
        """Hash what was received, as far as it was not hashed when it was sent."""
        if position < self._hashed:
            self._whole, self._hashed = blake3(), 0
        while self._hashed < position:
            data = self._read(self._hashed, position - self._hashed)
            self._whole.update(data)
            self._hashed += len(data)

    def _read(self, position: int, count: int) -> memoryview:
        found = os.preadv(self._opened.fileno(), [self._buffer[:count]], position)
        if not found:
            raise UploadSourceChanged
        return self._buffer[:found]

    def _refuse_change(self) -> None:
        status = os.fstat(self._opened.fileno())
        if (status.st_size, status.st_mtime_ns) != (self.size, self._changed_at):
            raise UploadSourceChanged


class StreamSource(PartSource):
    """What can be read once: a part of it is in memory.

    Args:
        opened: what has ``read``.
        progress: called while it is sent.
        size: bytes, if they are announced.
    """

    def __init__(self, opened: IO[bytes], progress: Progress | None, size: int | None) -> None:
        self.size = size
        self._opened = opened
        self._progress = progress
        self._part = bytearray()
        self._start = 0
        self._whole = blake3()
        self._is_at_end = False
        self._fill()

    @property
    def first(self) -> bytes | None:
        """All of it, if that is one part."""
        return bytes(self._part) if self._is_at_end else None

    def rest(self) -> IO[bytes]:
        """All of it, as it can be read once: when nothing was sent."""
        return cast("IO[bytes]", _Rest(bytes(self._part), self._opened))

    def is_ended(self, received: int) -> bool:
        self._go_to(received)
        return not self._part

    def part(self, received: int) -> tuple[int, Iterator[bytes]]:
        self._go_to(received)
        return len(self._part), self._blocks()

    def _blocks(self) -> Iterator[bytes]:
        view = memoryview(self._part)
        for begin in range(0, len(view), BLOCK):
            yield cast("bytes", view[begin : begin + BLOCK])
            if self._progress is not None:
                self._progress(self._start + min(begin + BLOCK, len(view)), self.size)
        yield blake3(view).digest()

    def accept(self, received: int) -> None:
        self._go_to(received)

    def digest(self) -> str:
        return str(self._whole.hexdigest())

    def _go_to(self, received: int) -> None:
        if received == self._start:
            return
        if received != self._start + len(self._part):
            raise UploadSourceChanged  # its bytes are gone
        self._start = received
        self._fill()

    def _fill(self) -> None:
        self._part = bytearray()
        while len(self._part) < STREAM_PART and not self._is_at_end:
            data = self._opened.read(min(BLOCK, STREAM_PART - len(self._part)))
            self._is_at_end = not data
            self._part += data
        self._whole.update(self._part)


class _Rest:
    """Bytes that were read, and then what follows them."""

    def __init__(self, first: bytes, opened: IO[bytes]) -> None:
        self._first = io.BytesIO(first)
        self._opened = opened

    def read(self, count: int) -> bytes:
        return self._first.read(count) or self._opened.read(count)


def _short_hash(text: str) -> str:
    return str(blake3(text.encode(errors="surrogateescape")).hexdigest()[:32])
