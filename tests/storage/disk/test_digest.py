from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from peerd.storage.disk.digest import (
    Chunking,
    ContentHasher,
    ContentReading,
    ContentVerifier,
    Digest,
    hash_file,
    verify_chunk,
    verify_file,
)
from peerd.storage.disk.errors import ContentMismatch, HashingStopped
from tests.storage.disk.contents import SMALL_CHUNKS, digest_of, some_bytes

DATA = some_bytes(64 * 5 + 7)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    path = tmp_path / "content"
    path.write_bytes(DATA)
    fd = os.open(path, os.O_RDWR)
    yield fd
    os.close(fd)


def by_definition(data: bytes, chunking: Chunking) -> Digest:
    """The digest as the specification words it."""
    size = chunking.chunk_size(len(data))
    chunks = [blake3(data[start : start + size]).digest() for start in range(0, len(data), size)]
    return Digest(len(data), blake3(data).digest(), size, tuple(chunks) if len(chunks) > 1 else ())


@given(st.binary(max_size=600), st.lists(st.integers(1, 200)))
def test_it_does_not_depend_on_the_pieces_in_which_the_bytes_come(data: bytes, pieces: list[int]) -> None:
    hasher = ContentHasher(SMALL_CHUNKS, len(data))
    position = 0
    for piece in [*pieces, len(data)]:
        hasher.update(data[position : position + piece])
        position += piece
    assert hasher.digest() == by_definition(data, SMALL_CHUNKS)


def test_chunks_are_doubled_until_there_are_few_enough() -> None:
    assert [SMALL_CHUNKS.chunk_size(size) for size in (0, 512, 513, 1024, 1025)] == [64, 64, 128, 128, 256]
    assert Chunking().chunk_size(16 * 1024**3) == 4 * 1024**2
    assert Chunking().chunk_size(16 * 1024**3 + 1) == 8 * 1024**2
    hasher = ContentHasher(SMALL_CHUNKS)
    hasher.update(bytes(512))
    assert hasher.digest() is not None
    hasher.update(b"x")
    assert hasher.digest() is None


def test_the_chunks_of_a_range_are_those_that_have_bytes_of_it() -> None:
    digest = digest_of(DATA)
    assert digest.chunks_of(0, 64) == range(1)
    assert digest.chunks_of(63, 65) == range(2)
    assert digest.chunks_of(64, 64) == range(0)
    assert digest.chunks_of(300, 10**9) == range(4, 6)
    assert digest.chunk_range(5) == range(320, 327)
    with pytest.raises(IndexError, match="has 6"):
        digest.chunk_range(6)
    empty = digest_of(b"")
    assert (empty.chunk_count, empty.chunk_range(0)) == (1, range(0))


def read_from_disk() -> int:
    counters = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counters["read_bytes"])


def test_the_disk_is_read_and_not_the_memory_of_the_system(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb+") as file:
        file.write(some_bytes(4 * 1024**2))
        file.flush()
        os.fsync(file.fileno())
        before = read_from_disk()
        cached = hash_file(file.fileno())
        assert read_from_disk() == before
        assert hash_file(file.fileno(), reading=ContentReading(from_disk=True)) == cached
        if read_from_disk() == before:
            pytest.skip("the temporary folder is not on a disk")
        assert read_from_disk() - before >= 4 * 1024**2


def test_a_file_is_verified_wherever_its_position_is_and_what_differs_is_named_by_its_chunks(file: int) -> None:
    expected = digest_of(DATA)
    os.lseek(file, 100, os.SEEK_SET)
    assert hash_file(file, SMALL_CHUNKS) == hash_file(file, SMALL_CHUNKS, ContentReading(from_disk=True)) == expected
    assert os.lseek(file, 0, os.SEEK_CUR) == 100
    for chunking in (SMALL_CHUNKS, Chunking(smallest=16, most=1000), Chunking()):
        verify_file(file, digest_of(DATA, chunking))
    for position in range(0, len(DATA), 13):
        os.pwrite(file, bytes([DATA[position] ^ 1]), position)
        for verify in (lambda: verify_file(file, expected), lambda at=position // 64: verify_chunk(file, expected, at)):
            with pytest.raises(ContentMismatch) as found:
                verify()
            assert found.value.chunks == (position // 64,)
        os.pwrite(file, DATA[position : position + 1], position)
    for index in range(expected.chunk_count):
        verify_chunk(file, expected, index)
    for size, chunks in ((326, (5,)), (200, (3, 4, 5)), (0, (0, 1, 2, 3, 4, 5))):
        os.ftruncate(file, size)
        with pytest.raises(ContentMismatch, match=f"{size} bytes, expected are {len(DATA)}") as found:
            verify_file(file, expected)
        assert found.value.chunks == chunks
        with pytest.raises(ContentMismatch):
            verify_chunk(file, expected, 5)
    os.pwrite(file, DATA + bytes(1000), 0)
    with pytest.raises(ContentMismatch, match="1327 bytes"):
        verify_file(file, expected)


def test_a_digest_whose_parts_do_not_fit_is_refused() -> None:
    one = bytes(32)
    for size, whole, chunk_size, chunks in (
        (-1, one, 64, ()),
        (65, one, 64, (one,)),
        (64, one, 64, (one,)),
        (64, b"short", 64, ()),
        (65, one, 64, (one, b"short")),
        (0, one, 0, ()),
    ):
        with pytest.raises(ValueError, match="byte"):
            Digest(size, whole, chunk_size, chunks)


def test_hashing_reports_its_progress_is_not_faster_than_permitted_and_is_stopped_at_once(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(bytes(2 * 1024**2))
    positions: list[int] = []
    begun = time.monotonic()
    with path.open("rb") as file:
        hash_file(file.fileno(), reading=ContentReading(positions.append, bytes_per_second=8 * 1024**2))
    assert time.monotonic() - begun >= 0.24
    assert positions == [1024**2, 2 * 1024**2]
    stop = threading.Event()
    reading = ContentReading(lambda _: threading.Timer(0.05, stop.set).start(), bytes_per_second=1, stop=stop)
    begun = time.monotonic()
    with path.open("rb") as file, pytest.raises(HashingStopped) as stopped:
        hash_file(file.fileno(), reading=reading)
    assert time.monotonic() - begun < 60  # not 12 days
    assert stopped.value.position == 1024**2
    with pytest.raises(ValueError, match="bytes_per_second"):
        ContentReading(bytes_per_second=0)


@given(st.integers(0, len(DATA)), st.integers(1, 1000), st.integers(0, len(DATA)))
def test_a_verifier_finds_what_differs_whatever_the_blocks_are(length: int, block: int, place: int) -> None:
    data, other = DATA[:length], bytearray(DATA[:length])

    def verified(written: bytes) -> ContentVerifier:
        verifier = ContentVerifier(digest_of(data))
        for first in range(0, len(written), block):
            verifier.update(written[first : first + block])
        return verifier

    verifier = verified(data)
    for _ in range(2):
        verifier.refuse_difference()  # as often as a publication is tried
    if place < length:
        other[place] ^= 1
        with pytest.raises(ContentMismatch, match="another BLAKE3") as found:
            verified(bytes(other)).refuse_difference()
        assert found.value.chunks == (place // 64,)
    for wrong in {length + 1, max(0, length - 1)} - {length}:
        with pytest.raises(ContentMismatch, match=f"{wrong} bytes, expected are {length}"):
            verified((data + b"x")[:wrong]).refuse_difference()
