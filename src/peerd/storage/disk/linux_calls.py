"""System calls of Linux that Python has not: to reserve space, and to start the writing of what was written.

`os.posix_fallocate` makes the file longer, and then nothing would show how much of a part was written.
"""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Final

_KEEP_SIZE: Final = 1  # FALLOC_FL_KEEP_SIZE, linux/falloc.h
_WRITE: Final = 2  # SYNC_FILE_RANGE_WRITE, linux/fs.h
_NOT_SUPPORTED: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS})

_libc: Final = ctypes.CDLL(None, use_errno=True)
_fallocate: Final = getattr(_libc, "fallocate64", None) or _libc.fallocate  # off_t has 64 bits in both
_fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
_sync_file_range: Final = _libc.sync_file_range
_sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)


def reserve_space(fd: int, size: int) -> bool:
    """Reserve the first `size` bytes of a file; whether its file system can do this.

    Raises:
        OSError: there is not enough space, or the file could not be written.
    """
    while size > 0 and _fallocate(fd, _KEEP_SIZE, 0, size) != 0:
        number = ctypes.get_errno()
        if number in _NOT_SUPPORTED:
            return False
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))
    return True


def release_reserved_space(fd: int) -> None:
    """Give back what is reserved after the end of a file. Raises OSError."""
    os.ftruncate(fd, os.fstat(fd).st_size)


def start_writing(fd: int, start: int, length: int) -> None:
    """Let the disk begin with a range of a file, so that a later fsync waits for less.

    It makes nothing durable and reports no error: the fsync does both.
    """
    _sync_file_range(fd, start, length, _WRITE)
