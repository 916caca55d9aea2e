"""The client of the node's control socket, through which the CLI sends commands to the master.

The socket lies in the run directory; only its owner can open it, and a client trusts only a socket that its own user or
root listens on.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from peerd.runtime.frames import DEFAULT_REPLY_TIMEOUT, encode, receive
from peerd.runtime.sockets import closed_on_error, short_socket_directory

PID_FILE: Final = "master.pid"
LOCK_FILE: Final = "lock"
_SOCKET_NAME: Final = "control.sock"
_CONNECT_RETRY_INTERVAL: Final = 0.02
RESPONSE_TIMEOUT: Final = 10.0


class MasterNotRunning(Exception):
    """No master runs in the run directory."""

    def __init__(self, run_directory: str | Path) -> None:
        super().__init__(f"no node is running in {run_directory} (start one with: peerd up)")


class MasterNotResponding(TimeoutError):
    """A master runs, but does not answer."""

    def __init__(self, run_directory: str | Path) -> None:
        super().__init__(
            f"the master in {run_directory} does not answer: it is stopped (continue it with kill -CONT), "
            "or its machine is overloaded"
        )


class ControlSocketNotTrusted(PermissionError):
    """The control socket belongs to another user."""

    def __init__(self, run_directory: str | Path, user: int) -> None:
        super().__init__(
            f"the control socket in {run_directory} belongs to user {user}, not to you (user {os.geteuid()}): "
            "run the command as that user or as root, or name the run directory of your own node"
        )


class CommandRefused(Exception):
    """The master has answered with an error, which is the text."""


def control_path(run_directory: str | Path) -> Path:
    return Path(run_directory) / _SOCKET_NAME


@contextmanager
def control_address(run_directory: str | Path) -> Iterator[str]:
    """Yield an address of the control socket that is short enough to bind or connect to.

    Raises:
        OSError: the folder cannot be opened.
    """
    with short_socket_directory(run_directory) as folder:
        yield str(folder / _SOCKET_NAME)


def find_running_master(run_directory: str | Path) -> int | None:
    """Return the process id of the master of a run directory, also while it starts or ends; else None.

    The pid file of a killed master may name another process by now, so that process must have the lock file open.
    """
    folder = Path(run_directory)
    with contextlib.suppress(OSError, ValueError):
        pid = int((folder / PID_FILE).read_text())
        lock = (folder / LOCK_FILE).stat()
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                if os.path.samestat(file.stat(), lock):
                    return pid
    return None


def status(run_directory: str | Path) -> dict[str, Any]:
    """Return the state of the node and of its slots.

    Raises:
        MasterNotRunning: there is no master.
    """
    return send_command(run_directory, {"command": "status"})


def stop(run_directory: str | Path, *, fast: bool = False, timeout: float | None = None) -> None:
    """Stop the node, which may just have been started, and wait until its master has exited.

    With `fast`, running work has no grace. The node continues to stop after a timeout.

    Raises:
        MasterNotRunning: there is no master.
        TimeoutError: it has not exited within `timeout` seconds.
    """
    with _connect(run_directory) as connection:
        _send_and_receive(connection, {"command": "stop", "fast": fast}, run_directory)
        connection.settimeout(timeout)
        while connection.recv(4096):  # the connection ends with the master
            pass


def call_agent(
    run_directory: str | Path, action: str, data: object = None, timeout: float = DEFAULT_REPLY_TIMEOUT
) -> Any:
    """Send the node's agent a request, as `Messenger.request` does in a process of the node, and return its reply.

    Raises:
        MasterNotRunning: there is no master.
        CommandRefused: there is no agent, it has not answered within `timeout` seconds, or its handler failed.
    """
    command = {"command": "call-agent", "action": action, "data": data, "timeout": timeout}
    return send_command(run_directory, command, timeout + RESPONSE_TIMEOUT)["data"]


def send_command(
    run_directory: str | Path, command: Mapping[str, object], timeout: float = RESPONSE_TIMEOUT
) -> dict[str, Any]:
    """Send a command, `{"command": NAME, …}`, to the master and return its answer.

    Raises:
        MasterNotResponding: the master does not answer within `timeout` seconds.
        MasterNotRunning: there is no master.
        CommandRefused: the command is unknown, or cannot be carried out.
    """
    with _connect(run_directory) as connection:
        connection.settimeout(timeout)
        return _send_and_receive(connection, command, run_directory)


def _connect(run_directory: str | Path) -> socket.socket:
    """Connect to the master; wait while a starting or ending one has no socket."""
    deadline = time.monotonic() + RESPONSE_TIMEOUT
    while True:
        try:
            return _try_connect(run_directory)
        except MasterNotRunning:
            if find_running_master(run_directory) is None or time.monotonic() > deadline:
                raise
            time.sleep(_CONNECT_RETRY_INTERVAL)


def _try_connect(run_directory: str | Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(RESPONSE_TIMEOUT)
    with closed_on_error(connection):
        try:
            with control_address(run_directory) as address:
                connection.connect(address)
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError) as error:
            raise MasterNotRunning(run_directory) from error
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII"))
        _, user, _ = struct.unpack("iII", credentials)
        if os.geteuid() != 0 and user not in {0, os.geteuid()}:
            raise ControlSocketNotTrusted(run_directory, user)
    return connection


def _send_and_receive(
    connection: socket.socket, command: Mapping[str, object], run_directory: str | Path
) -> dict[str, Any]:
    try:
        connection.sendall(encode(command, escape_surrogates=True))
        answer = receive(connection)
    except (BrokenPipeError, ConnectionResetError):
        answer = None
    except TimeoutError:
        raise MasterNotResponding(run_directory) from None
    if answer is None:
        raise MasterNotRunning(run_directory)
    if "error" in answer:
        raise CommandRefused(str(answer["error"]))
    return answer
