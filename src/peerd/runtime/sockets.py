"""The address of a listening socket, the path of a unix socket, and the removal of one whose process has ended.

Standard library only and little of it, because the master and `peerd-beanstalkd` load it before they listen.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def remove_stale_socket(path: str) -> None:
    """Remove the socket of a process that has ended, and nothing else.

    Args:
        path: of the socket; there need not be one.

    Raises:
        FileExistsError: the file is no socket.
        OSError: a process listens on it (EADDRINUSE).
    """
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(errno.EEXIST, "a file of this name exists and is no socket; remove it")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.setblocking(False)
        try:
            client.connect(path)
        except ConnectionRefusedError:
            _unlink(path)
            return
        except FileNotFoundError:
            return
        except BlockingIOError:
            pass  # its queue is full: a process listens
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def _unlink(path: str) -> None:
    try:
        os.unlink(path)  # noqa: PTH108 - pathlib is not loaded
    except FileNotFoundError:
        return  # another process has removed it


def format_address(one: socket.socket) -> str:
    """Where a socket listens: ``host:port``, or the path of a unix socket."""
    address = one.getsockname()
    match one.family:
        case socket.AF_INET:
            return f"{address[0]}:{address[1]}"
        case socket.AF_INET6:
            return f"[{address[0]}]:{address[1]}"
        case _:
            return str(address)


# ---------------------------------------------------------------- unix socket path


@contextmanager
def short_socket_directory(folder: str | Path) -> Iterator[Path]:
    """A short path of a folder, valid in this process and context. Raises OSError if the folder cannot be opened.

    >>> with short_socket_directory("/") as short:
    ...     (short / "etc").is_dir()
    True
    """
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
