"""Reserve the space of a file without making it longer.

`os.posix_fallocate` makes the file longer, and then nothing would show how much of a part was written.
"""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Final

_KEEP_SIZE: Final = 1  # FALLOC_FL_KEEP_SIZE, linux/falloc.h
_NOT_SUPPORTED: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS})

_libc: Final = ctypes.CDLL(None, use_errno=True)
_fallocate: Final = getattr(_libc, "fallocate64", None) or _libc.fallocate  # off_t has 64 bits in both
_fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


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
