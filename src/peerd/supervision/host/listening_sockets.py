"""The node's listening sockets. The master binds each once, and its children inherit them.

So a connection never meets a closed door: while one process is replaced by another, or all of them boot, it waits in
the kernel's queue, which is the same for all. (With SO_REUSEPORT each process would have a queue of its own, and what
waits in it is reset when that process goes.)
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import time
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from peerd.domain.bind_address import SystemdSocket, TcpAddress, UnixAddress, parse_bind_address
from peerd.supervision.plan import SocketPlan

BIND_TIMEOUT: Final = 2.0
"""Seconds that a starting master waits for an address: a killed one's children leave, and need a moment for it."""

_BIND_RETRY_INTERVAL: Final = 0.05
_FIRST_SYSTEMD_FD: Final = 3  # SD_LISTEN_FDS_START


class ListenError(Exception):
    """A socket that the plan wants cannot be had: which, and why."""

    def __init__(self, bind: str, problem: str) -> None:
        self.bind = bind
        super().__init__(f"cannot listen on {bind}: {problem}")


@dataclass(slots=True)
class _BoundSocket:
    plan: SocketPlan
    sockets: list[socket.socket]
    inode: tuple[int, int] | None = None
    """Of the file of a unix socket that is ours to remove."""


class SystemdSockets:
    """What systemd has passed to this process by LISTEN_FDS; the variables are taken out of the environment.

    Args:
        environment: `os.environ`.
        pid: our own; a message to another process is not for us.
    """

    def __init__(self, environment: MutableMapping[str, str], pid: int) -> None:
        listen_pid = environment.pop("LISTEN_PID", None)
        count = environment.pop("LISTEN_FDS", None)
        names = environment.pop("LISTEN_FDNAMES", "")
        self._by_name: dict[str, list[int]] = {}
        self._reason_none = "systemd has passed no sockets: is the service started by its socket unit?"
        if count is None:
            return
        if listen_pid != str(pid) or not count.isdecimal():
            self._reason_none = (
                f"systemd has passed its sockets to process {listen_pid}, and this is {pid}: start peerd itself"
            )
            return
        named = names.split(":") if names else []
        for number in range(int(count)):
            fd = _FIRST_SYSTEMD_FD + number
            os.set_inheritable(fd, False)
            self._by_name.setdefault(named[number] if number < len(named) else "unknown", []).append(fd)

    def take(self, bind: str, name: str) -> list[socket.socket]:
        """Return the listening sockets of a name, as copies.

        Raises:
            ListenError: there is none, or it does not listen.
        """
        if name not in self._by_name:
            known = f"only {', '.join(sorted(self._by_name))}" if self._by_name else self._reason_none
            raise ListenError(bind, f"there is no such socket; {known}")
        return [_adopt_listening_socket(bind, os.dup(fd)) for fd in self._by_name[name]]


class ListeningSockets:
    """All that a node listens on.

    Args:
        inherited: what systemd has passed.
    """

    def __init__(self, inherited: SystemdSockets) -> None:
        self._inherited = inherited
        self._open: dict[str, _BoundSocket] = {}

    def bind(self, plans: Mapping[str, SocketPlan]) -> None:
        """Bind what a starting node needs.

        Raises:
            ListenError: one of them cannot be bound; then none is.
        """
        deadline = time.monotonic() + BIND_TIMEOUT
        while True:
            try:
                self.apply(plans)
            except ListenError as error:
                taken = isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE
                if not taken or time.monotonic() >= deadline:
                    raise
                time.sleep(_BIND_RETRY_INTERVAL)
            else:
                return

    def apply(self, plans: Mapping[str, SocketPlan]) -> None:
        """Bind what is new and close what is not named any more; what stays is not touched, but for its backlog.

        Raises:
            ListenError: one of the new ones cannot be bound; then everything is as it was.
        """
        added: dict[str, _BoundSocket] = {}
        try:
            for name, plan in plans.items():
                if name not in self._open:
                    added[name] = self._bound(plan)
        except BaseException:
            for one in added.values():
                _close(one)
            raise
        for name in self._open.keys() - plans.keys():
            _close(self._open.pop(name))
        for name, one in self._open.items():
            one.plan = plans[name]
            for each in one.sockets:
                each.listen(one.plan.backlog)
        self._open |= added

    @property
    def plans(self) -> dict[str, SocketPlan]:
        """What is open now."""
        return {name: one.plan for name, one in self._open.items()}

    def descriptors(self, names: Iterable[str]) -> dict[str, int]:
        """Return the descriptors of sockets by name; where a name has several, the further ones are NAME#2, NAME#3.

        Raises:
            OSError: there is none of this name: the node is stopping.
        """
        found: dict[str, int] = {}
        for name in names:
            if name not in self._open:
                raise OSError(f"the node listens on {name} no more")
            for number, one in enumerate(self._open[name].sockets, start=1):
                found[name if number == 1 else f"{name}#{number}"] = one.fileno()
        return found

    def close(self) -> None:
        """Listen no more, as far as it is up to the master; files of unix sockets are removed."""
        self.apply({})

    def to_json(self) -> list[dict[str, object]]:
        """Return what `status` shows of them."""
        return [
            {"name": name, "bind": one.plan.bind, "addresses": [_format_address(each) for each in one.sockets]}
            for name, one in self._open.items()
        ]

    def addresses(self) -> list[str]:
        """Return where one can connect to, for people: the port that was found where any free one was asked for."""
        return [_format_address(each) for one in self._open.values() for each in one.sockets]

    def _bound(self, plan: SocketPlan) -> _BoundSocket:
        try:
            match parse_bind_address(plan.bind):
                case SystemdSocket(name):
                    return _BoundSocket(plan, self._inherited.take(plan.bind, name))
                case UnixAddress(path):
                    return _bind_unix(plan, path)
                case TcpAddress(host, port):
                    return _BoundSocket(plan, [_bind_tcp(plan, host, port)])
        except ValueError as error:
            raise ListenError(plan.bind, str(error)) from error
        except OSError as error:
            raise ListenError(plan.bind, _describe_error(error)) from error


# ---------------------------------------------------------------- one socket


def _bind_tcp(plan: SocketPlan, host: str, port: int) -> socket.socket:
    # A name may have addresses of both families, but a binding is one socket: IPv4 comes first.
    found = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)  # noqa: S104 - as it is written
    family, _, _, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if plan.reuse_port:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # so that ":80" can stand beside "[::]:80"
        one.bind(address)
        return _listen(one, plan)
    except BaseException:
        one.close()
        raise


def _bind_unix(plan: SocketPlan, path: str) -> _BoundSocket:
    _remove_stale_socket(path)
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o777 & ~plan.mode)  # the file has its mode from the first moment
    try:
        one.bind(path)
        file_stat = os.lstat(path)
        return _BoundSocket(plan, [_listen(one, plan)], (file_stat.st_dev, file_stat.st_ino))
    except BaseException:
        one.close()
        raise
    finally:
        os.umask(before)


def _remove_stale_socket(path: str) -> None:
    """Remove the socket of an owner that is dead, and nothing else."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(errno.EEXIST, "there is a file of this name, which is no socket; take it away")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.setblocking(False)
        try:
            client.connect(path)
        except ConnectionRefusedError:
            with contextlib.suppress(FileNotFoundError):
                Path(path).unlink()
            return
        except FileNotFoundError:
            return
        except BlockingIOError:
            pass  # its queue is full: somebody is there
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def _listen(one: socket.socket, plan: SocketPlan) -> socket.socket:
    one.setblocking(False)
    one.listen(plan.backlog)
    return one


def _adopt_listening_socket(bind: str, fd: int) -> socket.socket:
    try:
        one = socket.socket(fileno=fd)
    except OSError as error:
        os.close(fd)
        raise ListenError(bind, f"what systemd has passed is no socket ({_describe_error(error)})") from error
    listens = one.type == socket.SOCK_STREAM and one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if not listens:
        one.close()
        raise ListenError(bind, "what systemd has passed does not listen; it takes ListenStream= and Accept=no")
    one.setblocking(False)
    return one


def _close(one: _BoundSocket) -> None:
    for each in one.sockets:
        each.close()
    binding = parse_bind_address(one.plan.bind)
    if isinstance(binding, UnixAddress) and one.inode is not None:
        with contextlib.suppress(OSError):
            file_stat = os.lstat(binding.path)
            if (file_stat.st_dev, file_stat.st_ino) == one.inode:  # else another has taken the name
                Path(binding.path).unlink()


def _describe_error(error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return "another process listens there (find it with: ss -ltnxp); stop it, or choose another address"
        case errno.EACCES:
            return (
                "permission denied; a port below 1024 takes CAP_NET_BIND_SERVICE or a systemd socket, "
                "and a unix socket a folder that one may write to"
            )
        case errno.EADDRNOTAVAIL:
            return "this machine has no such address"
        case errno.ENOENT:
            return "there is no such folder"
        case _:
            return error.strerror or str(error)


def _format_address(one: socket.socket) -> str:
    address = one.getsockname()
    match one.family:
        case socket.AF_INET:
            return f"{address[0]}:{address[1]}"
        case socket.AF_INET6:
            return f"[{address[0]}]:{address[1]}"
        case _:
            return str(address)
