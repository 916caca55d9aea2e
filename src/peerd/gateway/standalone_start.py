"""What `peerd-beanstalkd` does before all else: it reads the flags of beanstalkd 1.13, and listens.

Next to nothing is loaded here, not even `typing`, so that the process listens as soon as it runs; clients wait in the
kernel's queue while the rest is loaded. Flags are letters that may be joined (`-VF`), with values behind them or as the
next argument. Sockets are bound by the process itself, or passed by systemd (LISTEN_FDS).
(`peerd.supervision.listening_sockets` does the same for a node by its plan.)
"""

from __future__ import annotations

import errno
import os
import socket

from peerd.runtime.socket_address import format_address, remove_stale_socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableMapping, Sequence
    from typing import Final, NoReturn

PROGRAM: Final = "peerd-beanstalkd"
MAX_JOB_SIZE: Final = 64 * 2**20
"""The largest value of -z, in bytes: the largest body of a task. beanstalkd's is 1 GiB."""
DEFAULT_ADDRESS: Final = "127.0.0.1"
DEFAULT_PORT: Final = "11300"
DEFAULT_JOB_SIZE: Final = 65_535
DEFAULT_LOG_SIZE: Final = 10 * 2**20
LOG_SIZE_UNIT: Final = 4096
DEFAULT_SYNC_INTERVAL: Final = 0.05
WRONG_USAGE: Final = 5
"""The exit status for flags that are not understood, as of beanstalkd."""
WITH_VALUE: Final = "bflpsuz"
USAGE: Final = f"""\
usage: {PROGRAM} [FLAGS]

 -l ADDR   listen on this address, or on a unix socket: unix:/path (default {DEFAULT_ADDRESS}; 0.0.0.0 is every address:
           there is no authentication, so let only trusted networks reach it)
 -p PORT   listen on this TCP port (default {DEFAULT_PORT})
 -b DIR    keep the jobs in DIR, in a SQLite file; without it they end with the process
 -f MS     write changes to the disk at most once in so many milliseconds (default 50);
           with -f 0 each change is on the disk before its answer
 -F        leave it to the system when changes are written to the disk
 -s BYTES  size to which SQLite's log grows before it is merged into the file (default {DEFAULT_LOG_SIZE})
 -z BYTES  the largest job (default {DEFAULT_JOB_SIZE}, at most {MAX_JOB_SIZE})
 -u USER   become this user, and its group
 -c, -n    accepted, without effect
 -V        print what happens; -VV prints more
 -v        print the version
 -h        print this

 SIGUSR1   accept no more jobs; SIGTERM or SIGINT stop
"""
BACKLOG: Final = 1024
CANNOT_LISTEN: Final = 111
"""The exit status where no socket can be bound, as of beanstalkd."""
FIRST_INHERITED: Final = 3  # SD_LISTEN_FDS_START
UNIX_PREFIX: Final = "unix:"


class Flags:
    """What the command line says, or the defaults."""

    address: str = DEFAULT_ADDRESS
    port: str = DEFAULT_PORT
    max_job_size: int = DEFAULT_JOB_SIZE
    folder: str | None = None
    """Where the jobs are kept; None: in memory."""
    sync_interval: float | None = DEFAULT_SYNC_INTERVAL
    """Seconds between two writes to the disk; 0: each change is written before its answer; None: never."""
    log_size: int = DEFAULT_LOG_SIZE
    user: str | None = None
    verbosity: int = 0
    names_address: bool = False
    """Whether an address or a port was given."""

    def __init__(self) -> None:
        self.warnings: list[str] = []


class ProgramExit(Exception):
    """The program is to end, with a status and a text: for stdout if it is what was asked for, else for stderr."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        self.text = text
        super().__init__(text)


def parse_flags(arguments: Sequence[str], version: str) -> Flags:
    """The flags of a command line.

    Raises:
        ProgramExit: a flag is not understood, or asks for the version or the usage.

    >>> flags = parse_flags(["-VFp", "11301", "-bjobs"], "1")
    >>> flags.port, flags.folder, flags.sync_interval, flags.max_job_size
    ('11301', 'jobs', None, 65535)
    """
    flags = Flags()
    remaining = list(arguments)
    while remaining:
        argument = remaining.pop(0)
        if not argument.startswith("-") or argument == "-":
            _refuse(f"unknown argument: {argument}")
        joined = argument[1:]
        while joined:
            flag, joined = joined[0], joined[1:]
            if flag in WITH_VALUE:
                value = joined or (remaining.pop(0) if remaining else _refuse(f"flag requires an argument: -{flag}"))
                joined = ""
                _set_value(flags, flag, value)
            else:
                _set_flag(flags, flag, version)
    return flags


def _set_flag(flags: Flags, flag: str, version: str) -> None:
    match flag:
        case "F":
            flags.sync_interval = None
        case "V":
            flags.verbosity += 1
        case "v":
            raise ProgramExit(0, f"beanstalkd {version}\n")
        case "h":
            raise ProgramExit(0, USAGE)
        case "c" | "n":
            flags.warnings.append(f"-{flag} has no effect: the log is always compacted")
        case _:
            _refuse(f"unknown flag: -{flag}")


def _set_value(flags: Flags, flag: str, value: str) -> None:
    match flag:
        case "l":
            flags.address, flags.names_address = value, True
        case "p":
            flags.port, flags.names_address = value, True
        case "b":
            flags.folder = value
        case "u":
            flags.user = value
        case "f":
            flags.sync_interval = _size(value) / 1000
        case "s":
            flags.log_size = -(-_size(value) // LOG_SIZE_UNIT) * LOG_SIZE_UNIT
        case _:
            _set_max_job_size(flags, value)


def _set_max_job_size(flags: Flags, value: str) -> None:
    """-z: a size that is too large, or below zero, is the largest one."""
    size = MAX_JOB_SIZE + 1 if value.startswith("-") and value[1:].isdigit() else _size(value)
    flags.max_job_size = min(size, MAX_JOB_SIZE)
    if size > MAX_JOB_SIZE:
        flags.warnings.append(f"maximum job size was set to {MAX_JOB_SIZE}")


def _size(value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) <= 18):
        _refuse(f"invalid size: {value}")
    return int(value)


def _refuse(problem: str) -> NoReturn:
    raise ProgramExit(WRONG_USAGE, f"{PROGRAM}: {problem}\n{USAGE}")


# ---------------------------------------------------------------- listening sockets


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
