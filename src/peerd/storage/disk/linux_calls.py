"""System calls of Linux that Python has not: to reserve space, to start the writing of what was written, and to make a
whole file system durable.

`os.posix_fallocate` makes the file longer, and then nothing would show how much of a part was written.
"""

from __future__ import annotations

import ctypes
import errno
import os
from functools import cache
from typing import Final

_KEEP_SIZE: Final = 1  # FALLOC_FL_KEEP_SIZE, linux/falloc.h
_WRITE: Final = 2  # SYNC_FILE_RANGE_WRITE, linux/fs.h
_NOT_SUPPORTED: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS})
_SYNCED: Final = frozenset({0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0x01021994})
"""ext4, XFS, Btrfs, F2FS and tmpfs (linux/magic.h): file systems of this machine, whose syncfs is as good as fsync. Of
others, such as FUSE, it is not known that it reaches the disk."""
_SYNC_REPORTS_SINCE: Final = (5, 17)
"""The version of Linux since which syncfs reports that data (5.8) or the journal (5.17) could not be written."""

_libc: Final = ctypes.CDLL(None, use_errno=True)
_fallocate: Final = getattr(_libc, "fallocate64", None) or _libc.fallocate  # off_t has 64 bits in both
_fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
_syncfs: Final = _libc.syncfs
_syncfs.argtypes = (ctypes.c_int,)
_fstatfs: Final = getattr(_libc, "fstatfs64", None) or _libc.fstatfs
_fstatfs.argtypes = (ctypes.c_int, ctypes.c_void_p)
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


def can_sync_file_system(fd: int) -> bool:
    """Whether `sync_file_system` makes durable what is in this file system, and reports what it could not write."""
    return _sync_reports_errors() and _file_system_type(fd) in _SYNCED


def sync_file_system(fd: int) -> None:
    """Make all files of a file system durable, and the names in its folders.

    An error is reported once to each descriptor, if it occurred after that was opened. So the descriptor is opened
    before the files are written, and no other thread uses it.

    Args:
        fd: of a folder or file in it.

    Raises:
        OSError: something in it could not be written, perhaps another file.
    """
    while _syncfs(fd) != 0:
        number = ctypes.get_errno()
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))


@cache
def _sync_reports_errors() -> bool:
    major, minor = os.uname().release.split(".")[:2]
    return (int(major), int("".join(digit for digit in minor if digit.isdigit()) or 0)) >= _SYNC_REPORTS_SINCE


def _file_system_type(fd: int) -> int:
    """The number of its type. Raises OSError."""
    found = ctypes.create_string_buffer(256)  # struct statfs has 120 bytes at most; its first field is the type
    if _fstatfs(fd, found) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return ctypes.c_long.from_buffer(found).value & 0xFFFFFFFF
