"""A forked process hashes, although the threads of its parent's hashes do not exist in it."""

from __future__ import annotations

from blake3 import blake3

from peerd.storage.disk.threaded_hash import THREADED_BLOCK, new_hash
from tests.support.forks import run_in_fork


def hash_of_blocks() -> str:
    hasher = new_hash()
    for number in range(8):
        hasher.update(bytes([number]) * THREADED_BLOCK)
    return hasher.hexdigest()


def test_several_threads_make_the_same_hash_also_in_a_forked_process() -> None:
    expected = blake3(b"".join(bytes([number]) * THREADED_BLOCK for number in range(8))).hexdigest()
    assert hash_of_blocks() == expected
    assert run_in_fork(hash_of_blocks) == expected
