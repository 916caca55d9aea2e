"""The listening sockets of `peerd-beanstalkd`: bound by itself, or passed by systemd (LISTEN_FDS).

Little of the standard library is loaded here, see the package. (`peerd.supervision.listening_sockets`
does the same for a node by its plan.)
"""

from __future__ import annotations

import errno
import os
import socket

from peerd.gateway.standalone.flags import PROGRAM, Flags, ProgramExit
from peerd.runtime.sockets import format_address, remove_stale_socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from typing import Final

BACKLOG: Final = 1024
CANNOT_LISTEN: Final = 111
"""The exit status where no socket can be bound, as of beanstalkd."""
FIRST_INHERITED: Final = 3  # SD_LISTEN_FDS_START
UNIX_PREFIX: Final = "unix:"


class Listeners:
    """Sockets that listen; the file of a unix socket is removed with them."""

    def __init__(
        self, sockets: list[socket.socket], unix_path: str | None = None, *, are_inherited: bool = False
    ) -> None:
        self.sockets = sockets
        self.are_inherited = are_inherited
        self._unix_path = unix_path
        self._unix_file = None if unix_path is None else os.lstat(unix_path)

    def close(self) -> None:
        """Close all, and remove the unix socket's file unless another process has replaced it."""
        for one in self.sockets:
            one.close()
        if self._unix_path is not None and self._unix_file is not None:
            try:
                if os.path.samestat(os.lstat(self._unix_path), self._unix_file):
                    os.unlink(self._unix_path)  # noqa: PTH108 - pathlib is not loaded
            except OSError:
                pass  # it was removed

    def describe(self) -> list[str]:
        """A line for each socket, as beanstalkd prints it with -V."""
        prefix = {socket.AF_UNIX: UNIX_PREFIX}
        return [f"bind {one.fileno()} {prefix.get(one.family, '')}{format_address(one)}" for one in self.sockets]


def open_listeners(flags: Flags, environment: MutableMapping[str, str], pid: int) -> Listeners:
    """The sockets that systemd has passed to process `pid`, else one that is bound as the flags say.

    Raises:
        ProgramExit: it cannot be bound, or what was passed is no listening socket.
    """
    if inherited := _inherited_sockets(environment, pid):
        return Listeners(inherited, are_inherited=True)
    try:
        if flags.address.startswith(UNIX_PREFIX):
            path = flags.address.removeprefix(UNIX_PREFIX)
            return Listeners([_bind_unix(path)], path)
        return Listeners([_bind_tcp(flags.address, flags.port)])
    except OSError as error:
        where = flags.address if flags.address.startswith(UNIX_PREFIX) else f"{flags.address} port {flags.port}"
        problem = f"{error.strerror or error}{_remedy(error)}"
        raise ProgramExit(CANNOT_LISTEN, f"{PROGRAM}: cannot listen on {where}: {problem}\n") from error


def _remedy(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "; -l is an address or the name of a host, -p a number or the name of a service"
    if error.errno == errno.EADDRINUSE:
        return "; find the process with ss -ltnxp and stop it, or choose another port with -p"
    return ""


def _inherited_sockets(environment: MutableMapping[str, str], pid: int) -> list[socket.socket]:
    listen_pid, count = environment.pop("LISTEN_PID", ""), environment.pop("LISTEN_FDS", "")
    environment.pop("LISTEN_FDNAMES", None)
    if listen_pid != str(pid) or not count.isdigit():
        return []
    return [_adopt(number) for number in range(FIRST_INHERITED, FIRST_INHERITED + int(count))]


def _adopt(number: int) -> socket.socket:
    try:
        one = socket.socket(fileno=number)
        if one.type == socket.SOCK_STREAM and one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            one.set_inheritable(False)
            return one
        problem = "it does not listen"
    except OSError as error:
        problem = error.strerror or str(error)
    raise ProgramExit(CANNOT_LISTEN, f"{PROGRAM}: descriptor {number} was passed as a listening socket: {problem}\n")


def _bind_tcp(host: str, port: str) -> socket.socket:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    problem: OSError | None = None
    for family, _, _, _, address in found:
        one = socket.socket(family, socket.SOCK_STREAM)
        try:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(address)
            one.listen(BACKLOG)
        except OSError as error:
            one.close()
            problem = problem or error
        else:
            return one
    raise problem or OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))


def _bind_unix(path: str) -> socket.socket:
    remove_stale_socket(path)
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        one.bind(path)
        one.listen(BACKLOG)
    except BaseException:
        one.close()
        raise
    return one
