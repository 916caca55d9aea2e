"""What identifies the bytes of a content, and how they are verified.

BLAKE3 of the whole content, and of its chunks when it has more than one, so that a range is verified without the rest.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from blake3 import blake3

from peerd.storage.disk.errors import ContentMismatch, HashingStopped

_BLOCK: Final = 1024 * 1024
_CACHED: Final = 256 * 1024
"""Bytes that are hashed while they are in the cache of the processor."""
_DIGEST_LENGTH: Final = 32


@dataclass(frozen=True, slots=True)
class Chunking:
    """How contents are divided: into chunks of `smallest` bytes, doubled until there are `most` of them or fewer.

    >>> Chunking().chunk_size(5_000_000), Chunking().chunk_size(100 * 1024**3)
    (4194304, 33554432)
    """

    smallest: int = 4 * 1024 * 1024
    most: int = 4096

    def __post_init__(self) -> None:
        if self.smallest < 1 or self.most < 1:
            raise ValueError("a chunk has at least one byte, and a content at least one chunk")

    def chunk_size(self, size: int) -> int:
        """Bytes of each chunk but the last one, for a content of `size` bytes."""
        chunk_size = self.smallest
        while size > chunk_size * self.most:
            chunk_size *= 2
        return chunk_size


CHUNKING: Final = Chunking()
"""That of all clusters; tests use smaller chunks."""


@dataclass(frozen=True, slots=True)
class Digest:
    """What identifies the bytes of a content.

    Args:
        size: bytes.
        blake3: of the whole content, 32 bytes.
        chunk_size: bytes of each chunk but the last one.
        chunks: BLAKE3 of each chunk; empty when there is only one, which is the whole content.

    Raises:
        ValueError: the parts do not fit together.
    """

    size: int
    blake3: bytes = field(repr=False)
    chunk_size: int
    chunks: tuple[bytes, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if self.size < 0 or self.chunk_size < 1:
            raise ValueError("a content has no negative size, and its chunks have at least one byte")
        if len(self.chunks) != (self.chunk_count if self.size > self.chunk_size else 0):
            raise ValueError(f"{len(self.chunks)} chunks of {self.chunk_size} bytes are not a content of {self.size}")
        if any(len(digest) != _DIGEST_LENGTH for digest in (self.blake3, *self.chunks)):
            raise ValueError("a BLAKE3 digest has 32 bytes")

    @property
    def chunk_count(self) -> int:
        """How many chunks the content has; an empty one has one."""
        return max(1, -(-self.size // self.chunk_size))

    def chunk_range(self, index: int) -> range:
        """The positions of the bytes of a chunk.

        Raises:
            IndexError: there is no such chunk.
        """
        if not 0 <= index < self.chunk_count:
            raise IndexError(f"there is no chunk {index}: the content has {self.chunk_count}")
        return range(index * self.chunk_size, min((index + 1) * self.chunk_size, self.size))

    def chunk_blake3(self, index: int) -> bytes:
        """BLAKE3 of a chunk. Raises IndexError when there is no such chunk."""
        self.chunk_range(index)
        return self.chunks[index] if self.chunks else self.blake3

    def chunks_of(self, start: int, stop: int) -> range:
        """The indices of the chunks that have bytes from `start` to before `stop`."""
        if stop <= start:
            return range(0)
        return range(start // self.chunk_size, min(-(-stop // self.chunk_size), self.chunk_count))


class ContentHasher:
    """Hashes a content on its way to the disk.

    Args:
        chunking: how it is divided.
        size: its bytes, if they are known: then the chunks have their right size from the start.
    """

    def __init__(self, chunking: Chunking = CHUNKING, size: int | None = None) -> None:
        self.chunking = chunking
        self.chunk_size = chunking.chunk_size(size or 0)
        self.position = 0
        self._whole = blake3()
        self._chunk = blake3()
        self._chunks: list[bytes] = []

    def update(self, data: memoryview | bytes) -> None:
        """The next bytes of the content."""
        view = memoryview(data)
        while view:
            room = self.chunk_size - self.position % self.chunk_size
            self._update_chunk(view[:room])
            view = view[room:]

    def _update_chunk(self, piece: memoryview) -> None:
        self._whole.update(piece)
        # The first chunk's digest is the digest of the whole until this one ends: a small content is hashed once.
        if self.position >= self.chunk_size:
            self._chunk.update(piece)
        self.position += len(piece)
        if self.position == self.chunk_size:
            self._chunks.append(self._whole.digest())
        elif self.position % self.chunk_size == 0:
            self._chunks.append(self._chunk.digest())
            self._chunk.reset()

    def copy(self) -> ContentHasher:
        """Another one that has had the same bytes."""
        made = ContentHasher(self.chunking)
        made.chunk_size, made.position = self.chunk_size, self.position
        made._whole, made._chunk, made._chunks = self._whole.copy(), self._chunk.copy(), [*self._chunks]
        return made

    def digest(self) -> Digest | None:
        """The digest of the bytes so far; None when so many bytes need larger chunks than were made."""
        if self.chunk_size != self.chunking.chunk_size(self.position):
            return None
        chunks = [*self._chunks, self._chunk.digest()] if self.position % self.chunk_size else self._chunks
        return Digest(
            self.position,
            self._whole.digest(),
            self.chunk_size,
            tuple(chunks) if self.position > self.chunk_size else (),
        )


class ContentVerifier:
    """Compares a content with its digest on its way to the disk, or from it.

    Of a content with several chunks, those are hashed and not the whole once more. That is as good as long as the list
    of chunks belongs to the whole, which cannot be seen from the list: so the digest must come from the catalogue. The
    node that received the content has entered both there, made from the same bytes. Nodes send each other no digests.

    Args:
        expected: the digest that it must have, by the catalogue.
    """

    def __init__(self, expected: Digest) -> None:
        self.expected = expected
        self.position = 0
        self._hash = blake3()
        self._wrong: list[int] = []

    def update(self, data: memoryview | bytes) -> None:
        """The next bytes of the content."""
        view = memoryview(data)
        while view:
            piece = view[: self.expected.chunk_size - self.position % self.expected.chunk_size]
            self._hash.update(piece)
            self.position += len(piece)
            if self.position % self.expected.chunk_size == 0:
                self._wrong += self._wrong_at(self.position // self.expected.chunk_size - 1)
                self._hash.reset()
            view = view[len(piece) :]

    def refuse_difference(self, content: str | None = None) -> None:
        """Raise ContentMismatch unless all bytes so far are the content, which has this id."""
        ended = self.position // self.expected.chunk_size
        wrong = [*self._wrong]
        if self.position % self.expected.chunk_size or not self.expected.size:
            wrong += self._wrong_at(ended)
            ended += 1
        wrong += range(ended, self.expected.chunk_count)
        if self.position != self.expected.size:
            problem = f"it has {self.position} bytes, expected are {self.expected.size}"
            raise ContentMismatch(problem, tuple(wrong), content)
        if wrong:
            where = f" in chunk {', '.join(map(str, wrong[:10]))}" if self.expected.chunks else ""
            raise ContentMismatch(f"it has another BLAKE3{where}", tuple(wrong), content)

    def _wrong_at(self, index: int) -> list[int]:
        """The index, if what was hashed is not the chunk of this index."""
        is_right = index < self.expected.chunk_count and self._hash.digest() == self.expected.chunk_blake3(index)
        return [] if is_right else [index]


@dataclass(frozen=True, slots=True)
class ContentReading:
    """How a content is read to be hashed.

    Args:
        progress: called with the position, after at most a mebibyte.
        bytes_per_second: at most so many, None: as fast as it goes.
        stop: when it is set, reading ends with HashingStopped.
        from_disk: drop the content from the memory of the system before and after, so that the disk is read, and what
            others read stays in the memory.
    """

    progress: Callable[[int], None] | None = None
    bytes_per_second: float | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    from_disk: bool = False

    def __post_init__(self) -> None:
        if self.bytes_per_second is not None and self.bytes_per_second <= 0:
            raise ValueError("bytes_per_second is above 0, or None")

    def feed(self, fd: int, hasher: ContentHasher | ContentVerifier) -> None:
        """Hash a file from the position of the hasher to its end. Raises OSError and HashingStopped."""

        def drop(position: int, count: int) -> None:
            os.posix_fadvise(fd, position, count, os.POSIX_FADV_DONTNEED)

        if self.from_disk:
            drop(0, 0)
        buffer = memoryview(bytearray(min(_BLOCK, max(1, os.fstat(fd).st_size - hasher.position))))

        def read(position: int) -> memoryview:
            return buffer[: os.preadv(fd, [buffer], position)]

        self.feed_from(read, hasher, drop if self.from_disk else None)

    def feed_from(
        self,
        read: Callable[[int], memoryview | bytes],
        hasher: ContentHasher | ContentVerifier,
        done: Callable[[int, int], None] | None = None,
    ) -> None:
        """Hash what ``read`` gives from the position of the hasher on, until it gives nothing.

        Args:
            read: called with a position; what it gives is used before it is called again.
            hasher: of the content.
            done: called with the position and the number of bytes that were hashed.

        Raises:
            HashingStopped: the event was set; and what ``read`` raises.
        """
        begun, first = time.monotonic(), hasher.position
        while data := read(hasher.position):
            hasher.update(data)
            if self.progress:
                self.progress(hasher.position)
            ahead = 0.0
            if self.bytes_per_second:
                ahead = (hasher.position - first) / self.bytes_per_second - (time.monotonic() - begun)
            if self.stop.wait(ahead) if ahead > 0 else self.stop.is_set():
                raise HashingStopped(hasher.position)
            if done is not None:
                done(hasher.position - len(data), len(data))


def hash_file(fd: int, chunking: Chunking = CHUNKING, reading: ContentReading | None = None) -> Digest:
    """The digest of an open file, from its first to its last byte; its position is not used.

    Raises:
        OSError: it could not be read.
        HashingStopped: the event of `reading` was set.
        ContentMismatch: its size changed meanwhile.
    """
    size = os.fstat(fd).st_size
    hasher = ContentHasher(chunking, size)
    (reading or ContentReading()).feed(fd, hasher)
    digest = hasher.digest()
    if digest is None or digest.size != size:
        raise ContentMismatch(f"its size changed from {size} to {hasher.position} bytes while it was read")
    return digest


def digest_of(data: bytes, chunking: Chunking = CHUNKING) -> Digest:
    """The digest of bytes.

    >>> digest_of(b"").blake3.hex()[:16]
    'af1349b9f5f9a1a6'
    """
    hasher = ContentHasher(chunking, len(data))
    hasher.update(data)
    digest = hasher.digest()
    assert digest is not None
    return digest


def verify_file(fd: int, expected: Digest, reading: ContentReading | None = None) -> None:
    """Verify all bytes of an open file.

    Raises:
        ContentMismatch: they are others; `chunks` are the wrong ones.
        OSError, HashingStopped: as `hash_file`.
    """
    verifier = ContentVerifier(expected)
    (reading or ContentReading()).feed(fd, verifier)
    verifier.refuse_difference()


def verify_chunk(fd: int, expected: Digest, index: int, kept: range = range(0)) -> bytes:
    """Read one chunk of an open file, and verify it.

    Args:
        fd: of the file.
        expected: the digest of the whole content.
        index: of the chunk.
        kept: positions in the content whose bytes are returned, as far as they are in the chunk.

    Raises:
        ContentMismatch: it is another one; `chunks` is its index.
        IndexError: there is no such chunk.
        OSError: it could not be read.
    """
    positions = expected.chunk_range(index)
    found, position, bytes_kept = blake3(), positions.start, bytearray()
    buffer = memoryview(bytearray(min(_CACHED, len(positions))))
    while position < positions.stop:
        count = os.preadv(fd, [buffer[: positions.stop - position]], position)
        if not count:
            raise _short_chunk(positions, index, position - positions.start)
        found.update(buffer[:count])
        bytes_kept += buffer[max(0, kept.start - position) : min(count, max(0, kept.stop - position))]
        position += count
    _compare_chunk(found.digest(), expected, index)
    return bytes(bytes_kept)


def compared_chunk(data: bytes, expected: Digest, index: int) -> bytes:
    """The bytes of a chunk, if they are as expected. Raises ContentMismatch and IndexError as `verify_chunk`."""
    positions = expected.chunk_range(index)
    if len(data) != len(positions):
        raise _short_chunk(positions, index, len(data))
    _compare_chunk(blake3(data).digest(), expected, index)
    return data


def _short_chunk(positions: range, index: int, count: int) -> ContentMismatch:
    return ContentMismatch(f"chunk {index} has {count} bytes of {len(positions)}", (index,))


def _compare_chunk(found: bytes, expected: Digest, index: int) -> None:
    if found != expected.chunk_blake3(index):
        positions = expected.chunk_range(index)
        raise ContentMismatch(f"chunk {index} at byte {positions.start} has another BLAKE3", (index,))


def refuse_difference(expected: Digest, found: Digest, content: str | None = None) -> None:
    """Raise ContentMismatch when two digests are of different bytes, those of a content of this id.

    Their chunks are compared if they have the same size.
    """
    wrong = _wrong_chunks(expected, found)
    if found.size != expected.size:
        raise ContentMismatch(f"it has {found.size} bytes, expected are {expected.size}", wrong, content)
    if found.blake3 != expected.blake3 or wrong:
        where = f" in chunk {', '.join(map(str, wrong[:10]))}" if wrong else ""
        raise ContentMismatch(f"it has another BLAKE3{where}", wrong, content)


def _wrong_chunks(expected: Digest, found: Digest) -> tuple[int, ...]:
    if found.chunk_size != expected.chunk_size:
        return ()
    return tuple(
        index
        for index in range(max(expected.chunk_count, found.chunk_count))
        if index >= min(expected.chunk_count, found.chunk_count)
        or expected.chunk_blake3(index) != found.chunk_blake3(index)
    )
