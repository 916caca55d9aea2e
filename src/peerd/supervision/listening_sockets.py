"""The node's listening sockets. The master binds each once, and its children inherit them.

While a process boots or is replaced, connections wait in the kernel's queue, which all processes share. (With
SO_REUSEPORT each process would have its own queue, and the connections in it are reset when the process ends.)
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from peerd.domain.bind_address import SystemdSocket, TcpAddress, UnixAddress, parse_bind_address
from peerd.runtime.socket_address import format_address, remove_stale_socket
from peerd.runtime.sockets import closed_on_error
from peerd.supervision.plan import SocketPlan

BIND_TIMEOUT: Final = 2.0
"""Seconds that a starting master waits for an address: children of a killed master need a moment to end."""

_BIND_RETRY_INTERVAL: Final = 0.05
_FIRST_SYSTEMD_FD: Final = 3  # SD_LISTEN_FDS_START
_KNOWN_ERRORS: Final = {
    errno.EADDRINUSE: "another process listens there (find it with: ss -ltnxp); stop it, or choose another address",
    errno.EACCES: "permission denied; a port below 1024 takes CAP_NET_BIND_SERVICE or a systemd socket, and a unix "
    "socket a folder with write permission",
    errno.EADDRNOTAVAIL: "this machine has no such address",
    errno.ENOENT: "there is no such folder",
}


class ListenError(Exception):
    """A socket of the plan cannot be bound; the text says why."""

    def __init__(self, bind: str, problem: str) -> None:
        self.bind = bind
        super().__init__(f"cannot listen on {bind}: {problem}")


@dataclass(slots=True)
class _BoundSocket:
    plan: SocketPlan
    sockets: list[socket.socket]
    file: os.stat_result | None = None  # of a unix socket that this process has created, and removes


class SystemdSockets:
    """The sockets that systemd has passed to process `pid` by LISTEN_FDS; its variables are removed."""

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
        for number, fd in enumerate(range(_FIRST_SYSTEMD_FD, _FIRST_SYSTEMD_FD + int(count))):
            os.set_inheritable(fd, False)
            self._by_name.setdefault(named[number] if number < len(named) else "unknown", []).append(fd)

    def take(self, bind: str, name: str) -> list[socket.socket]:
        """Return copies of the listening sockets with a name.

        Raises:
            ListenError: there is none, or it does not listen.
        """
        if name not in self._by_name:
            known = f"only {', '.join(sorted(self._by_name))}" if self._by_name else self._reason_none
            raise ListenError(bind, f"there is no such socket; {known}")
        return [_adopt_listening_socket(bind, os.dup(fd)) for fd in self._by_name[name]]


class ListeningSockets:
    """All sockets that a node listens on."""

    def __init__(self, inherited: SystemdSockets) -> None:
        self._inherited = inherited
        self._open: dict[str, _BoundSocket] = {}

    def bind(self, plans: Mapping[str, SocketPlan]) -> None:
        """Bind the sockets of a starting node; an address in use is tried again for `BIND_TIMEOUT` seconds.

        Raises:
            ListenError: one of them cannot be bound; then none is.
        """
        deadline = time.monotonic() + BIND_TIMEOUT
        while True:
            try:
                self.apply(plans)
                break
            except ListenError as error:
                in_use = isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE
                if not in_use or time.monotonic() >= deadline:
                    raise
                time.sleep(_BIND_RETRY_INTERVAL)

    def apply(self, plans: Mapping[str, SocketPlan]) -> None:
        """Bind new sockets and close those that are not in the plans; others keep their queue.

        Raises:
            ListenError: a new one cannot be bound; then nothing has changed.
        """
        added: dict[str, _BoundSocket] = {}
        try:
            for name, plan in plans.items():
                if name not in self._open:
                    added[name] = self._bind_one(plan)
        except BaseException:
            for bound in added.values():
                _close(bound)
            raise
        for name in self._open.keys() - plans.keys():
            _close(self._open.pop(name))
        for name, bound in self._open.items():
            bound.plan = plans[name]
            for one in bound.sockets:
                one.listen(bound.plan.backlog)
        self._open |= added

    @property
    def plans(self) -> dict[str, SocketPlan]:
        return {name: bound.plan for name, bound in self._open.items()}

    def descriptors(self, names: Iterable[str]) -> dict[str, int]:
        """Return the descriptors of sockets by name; further ones of the same name are NAME#2, NAME#3.

        Raises:
            OSError: there is none of this name, because the node is stopping.
        """
        found: dict[str, int] = {}
        for name in names:
            if name not in self._open:
                raise OSError(f"the node no longer listens on {name}")
            for number, one in enumerate(self._open[name].sockets, start=1):
                found[name if number == 1 else f"{name}#{number}"] = one.fileno()
        return found

    def close(self) -> None:
        """Close the master's copies of all sockets, and remove the files of unix sockets."""
        self.apply({})

    def to_json(self) -> list[dict[str, object]]:
        return [
            {"name": name, "bind": bound.plan.bind, "addresses": [format_address(one) for one in bound.sockets]}
            for name, bound in self._open.items()
        ]

    def addresses(self) -> list[str]:
        """Return the addresses to connect to, with the port that was chosen for port 0."""
        return [format_address(one) for bound in self._open.values() for one in bound.sockets]

    def _bind_one(self, plan: SocketPlan) -> _BoundSocket:
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
    # A name may have addresses of both families, but one socket is bound: IPv4 is preferred.
    found = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)  # noqa: S104 - as configured
    family, _, _, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
    # an IPv6 socket takes no IPv4 connections, so that ":80" and "[::]:80" can both be bound
    one = socket.create_server(address, family=family, backlog=plan.backlog, reuse_port=plan.reuse_port)
    one.setblocking(False)
    return one


def _bind_unix(plan: SocketPlan, path: str) -> _BoundSocket:
    remove_stale_socket(path)
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    before = os.umask(0o777 & ~plan.mode)  # the file has its mode from the first moment
    try:
        with closed_on_error(one):
            one.bind(path)
            one.listen(plan.backlog)
            return _BoundSocket(plan, [one], os.lstat(path))
    finally:
        os.umask(before)


def _adopt_listening_socket(bind: str, fd: int) -> socket.socket:
    try:
        one = socket.socket(fileno=fd)
    except OSError as error:
        os.close(fd)
        raise ListenError(bind, f"systemd has passed a file that is no socket ({_describe_error(error)})") from error
    if one.type != socket.SOCK_STREAM or not one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        one.close()
        raise ListenError(bind, "systemd has passed a socket that does not listen; set ListenStream= and Accept=no")
    one.setblocking(False)
    return one


def _close(bound: _BoundSocket) -> None:
    for one in bound.sockets:
        one.close()
    address = parse_bind_address(bound.plan.bind)
    if isinstance(address, UnixAddress) and bound.file is not None:
        with contextlib.suppress(OSError):
            if os.path.samestat(os.lstat(address.path), bound.file):  # else another process has replaced it
                Path(address.path).unlink()


def _describe_error(error: OSError) -> str:
    return _KNOWN_ERRORS.get(error.errno or 0) or error.strerror or str(error)
