"""BLAKE3 over all processors.

The library hashes the two halves of a block in two threads of a pool of its own, and so on; the threads of that pool do
not exist in a forked process, in which waiting for them would never end.
"""

from __future__ import annotations

import os
import threading
from typing import Final

from blake3 import blake3

THREADED_BLOCK: Final = 1024 * 1024
"""Bytes of a block that is worth the threads (measured on two processors: 2.6 GB/s by one thread, with blocks of
256 KiB 2.5, and of a mebibyte 5 to 7 by all)."""

_is_forked = threading.Event()


def new_hash(size: int | None = None) -> blake3:
    """A hash that uses several threads, unless it is known to be of few bytes: waking threads takes some microseconds.

    Args:
        size: bytes that are to be hashed, if it is known.

    >>> new_hash().update(b"film").hexdigest()[:8]
    'a1df755f'
    """
    is_small = size is not None and size < THREADED_BLOCK
    return blake3(max_threads=1 if is_small or _is_forked.is_set() else blake3.AUTO)


os.register_at_fork(after_in_child=_is_forked.set)
