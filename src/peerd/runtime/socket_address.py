"""The address of a listening socket, and the removal of the unix socket of a process that has ended.

Standard library only and little of it, because the master and `peerd-beanstalkd` load it before they listen.
"""

from __future__ import annotations

import errno
import os
import socket
import stat


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
