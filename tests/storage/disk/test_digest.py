from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from itertools import product
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


def test_a_digest_is_that_of_the_whole_and_of_each_chunk() -> None:
    for size in (0, 1, 63, 64, 65, 127, 128, 129, 512):
        data = some_bytes(size)
        assert digest_of(data) == by_definition(data, SMALL_CHUNKS), size


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


def test_a_file_is_hashed_wherever_its_position_is(file: int) -> None:
    os.lseek(file, 100, os.SEEK_SET)
    assert hash_file(file, SMALL_CHUNKS) == digest_of(DATA)
    assert hash_file(file, SMALL_CHUNKS, ContentReading(from_disk=True)) == digest_of(DATA)
    assert os.lseek(file, 0, os.SEEK_CUR) == 100


def test_each_flipped_bit_is_found_and_its_chunk_named(file: int) -> None:
    expected = digest_of(DATA)
    verify_file(file, expected)
    for position in range(0, len(DATA), 13):
        byte = DATA[position]
        for bit in (1, 128):
            os.pwrite(file, bytes([byte ^ bit]), position)
            with pytest.raises(ContentMismatch) as found:
                verify_file(file, expected)
            assert found.value.chunks == (position // 64,)
            with pytest.raises(ContentMismatch) as found:
                verify_chunk(file, expected, position // 64)
            assert found.value.chunks == (position // 64,)
        os.pwrite(file, bytes([byte]), position)
    for index in range(expected.chunk_count):
        verify_chunk(file, expected, index)


def test_bytes_that_are_missing_or_too_many_are_found_and_the_chunks_named(file: int) -> None:
    verify_file(file, digest_of(DATA, Chunking(smallest=16, most=1000)))
    verify_file(file, digest_of(DATA, Chunking()))
    for size, chunks in ((326, (5,)), (320, (5,)), (200, (3, 4, 5)), (0, (0, 1, 2, 3, 4, 5))):
        os.ftruncate(file, size)
        with pytest.raises(ContentMismatch, match=f"{size} bytes, expected are {len(DATA)}") as found:
            verify_file(file, digest_of(DATA))
        assert found.value.chunks == chunks
        with pytest.raises(ContentMismatch):
            verify_chunk(file, digest_of(DATA), 5)
    os.pwrite(file, DATA + bytes(1000), 0)
    with pytest.raises(ContentMismatch, match="1327 bytes"):
        verify_file(file, digest_of(DATA))


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


def test_a_digest_whose_parts_do_not_fit_and_a_speed_that_would_never_end_are_refused() -> None:
    with pytest.raises(ValueError, match="bytes_per_second"):
        ContentReading(bytes_per_second=0)
    one = bytes(32)
    for size, whole, chunk_size, chunks in (
        (-1, one, 64, ()),
        (65, one, 64, ()),
        (65, one, 64, (one,)),
        (64, one, 64, (one,)),
        (64, b"short", 64, ()),
        (65, one, 64, (one, b"short")),
        (0, one, 0, ()),
    ):
        with pytest.raises(ValueError, match="byte"):
            Digest(size, whole, chunk_size, chunks)


def test_progress_is_reported_and_hashing_can_be_stopped(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(bytes(3 * 1024**2))
    positions: list[int] = []
    stop = threading.Event()

    def progress(position: int) -> None:
        positions.append(position)
        if position == 2 * 1024**2:
            stop.set()

    with path.open("rb") as file, pytest.raises(HashingStopped) as stopped:
        hash_file(file.fileno(), reading=ContentReading(progress, stop=stop))
    assert stopped.value.position == 2 * 1024**2
    assert positions == [1024**2, 2 * 1024**2]


def test_hashing_is_not_faster_than_permitted_and_is_stopped_at_once(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(bytes(2 * 1024**2))
    begun = time.monotonic()
    with path.open("rb") as file:
        hash_file(file.fileno(), reading=ContentReading(bytes_per_second=8 * 1024**2))
    assert time.monotonic() - begun >= 0.24
    stop = threading.Event()
    reading = ContentReading(
        progress=lambda position: threading.Timer(0.05, stop.set).start(), bytes_per_second=1, stop=stop
    )
    begun = time.monotonic()
    with path.open("rb") as file, pytest.raises(HashingStopped):
        hash_file(file.fileno(), reading=reading)
    assert time.monotonic() - begun < 60  # not 12 days


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


def test_a_verifier_finds_what_differs_whatever_the_blocks_are() -> None:
    for block, length in product((1, 63, 64, 65, 1000), (0, 1, 63, 64, 65, 128, len(DATA))):
        data = DATA[:length]
        for changed in sorted({0, length // 2, length - 1} & set(range(length))):
            other = bytearray(data)
            other[changed] ^= 1
            with pytest.raises(ContentMismatch, match="another BLAKE3") as found:
                verified(other, digest_of(data), block).refuse_difference()
            assert found.value.chunks == (changed // 64,)
        verifier = verified(data, digest_of(data), block)
        for _ in range(2):
            verifier.refuse_difference()  # as often as a publication is tried
        for other_length in {length + 1, max(0, length - 1)} - {length}:
            with pytest.raises(ContentMismatch, match=f"{other_length} bytes, expected are {length}"):
                verified((data + b"x")[:other_length], digest_of(data), block).refuse_difference()


def verified(data: bytes | bytearray, expected: Digest, block: int) -> ContentVerifier:
    verifier = ContentVerifier(expected)
    for first in range(0, len(data), block):
        verifier.update(bytes(data[first : first + block]))
    return verifier
