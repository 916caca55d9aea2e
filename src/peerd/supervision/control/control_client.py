"""The node's control socket, seen by its clients: what the CLI asks a master.

The socket lies in the run directory, and only its owner may open it; and a client believes only a socket that its own
user, or root, listens on.
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

from peerd.runtime.messages.addressing import DEFAULT_REPLY_TIMEOUT
from peerd.runtime.messages.frames import encode, receive
from peerd.runtime.unix_socket_path import short_socket_directory

PID_FILE: Final = "master.pid"
LOCK_FILE: Final = "lock"
_SOCKET_NAME: Final = "control.sock"
_CONNECT_RETRY_INTERVAL: Final = 0.02
RESPONSE_TIMEOUT: Final = 10.0


class MasterNotRunning(Exception):
    """No master works in the run directory."""

    def __init__(self, run_directory: str | Path) -> None:
        super().__init__(f"no node is running in {run_directory} (start one with: peerd up)")


class MasterNotResponding(TimeoutError):
    """A master is there, and says nothing."""

    def __init__(self, run_directory: str | Path) -> None:
        super().__init__(
            f"the master in {run_directory} does not answer: it is stopped (kill -CONT lets it go on), "
            "or its machine has too much to do"
        )


class ControlSocketNotTrusted(PermissionError):
    """Another user has made the control socket, and what it says is not believed."""

    def __init__(self, run_directory: str | Path, user: int) -> None:
        super().__init__(
            f"the control socket in {run_directory} belongs to user {user}, not to you (user {os.geteuid()}): "
            "ask as that user, or as root, or name the run directory of your own node"
        )


class CommandRefused(Exception):
    """The master did not do what it was asked; its own words say why."""


def control_path(run_directory: str | Path) -> Path:
    """Return where the control socket of a run directory is."""
    return Path(run_directory) / _SOCKET_NAME


@contextmanager
def control_address(run_directory: str | Path) -> Iterator[str]:
    """Give an address of the control socket that is short enough to bind or connect to.

    Raises:
        OSError: the folder cannot be opened.
    """
    with short_socket_directory(run_directory) as folder:
        yield str(folder / _SOCKET_NAME)


def find_running_master(run_directory: str | Path) -> int | None:
    """Return the process id of the master that works in a run directory, also while it starts or ends; else None.

    The file that a killed one has left may name a stranger by now: the process must have the folder's lock open.
    """
    folder = Path(run_directory)
    with contextlib.suppress(OSError, ValueError):
        pid = int((folder / PID_FILE).read_text())
        lock = (folder / LOCK_FILE).stat()
        if any(_is_same_file(file, lock) for file in Path(f"/proc/{pid}/fd").iterdir()):
            return pid
    return None


def _is_same_file(file: Path, other: os.stat_result) -> bool:
    try:
        return os.path.samestat(file.stat(), other)
    except OSError:  # closed meanwhile
        return False


def status(run_directory: str | Path) -> dict[str, Any]:
    """Return the node's state and that of its slots, as the master answers `{"command": "status"}`.

    Raises:
        MasterNotRunning: there is no master.
    """
    return send_command(run_directory, {"command": "status"})


def stop(run_directory: str | Path, *, fast: bool = False, timeout: float | None = None) -> None:
    """Stop the node and wait until its master has ended; also one that has just been started.

    Args:
        run_directory: the node's.
        fast: leave running work no grace.
        timeout: seconds to wait at most; the node goes on stopping afterwards.

    Raises:
        MasterNotRunning: there is no master.
        TimeoutError: it has not ended in time.
    """
    with _connect(run_directory) as connection:
        _send_and_receive(connection, {"command": "stop", "fast": fast}, run_directory)
        connection.settimeout(timeout)
        while connection.recv(4096):  # the connection ends with the master
            pass


def call_agent(
    run_directory: str | Path, action: str, data: object = None, timeout: float = DEFAULT_REPLY_TIMEOUT
) -> Any:
    """Ask the node's agent something, as `Messenger.request` does in a process of the node.

    Args:
        run_directory: the node's.
        action: what is asked; a handler in the agent listens to it.
        data: whatever JSON can say.
        timeout: seconds to wait for the reply.

    Raises:
        MasterNotRunning: there is no master.
        Refused: there is no agent, it has not answered in time, or its handler failed.
    """
    command = {"command": "call-agent", "action": action, "data": data, "timeout": timeout}
    return send_command(run_directory, command, timeout + RESPONSE_TIMEOUT)["data"]


def send_command(
    run_directory: str | Path, command: Mapping[str, object], timeout: float = RESPONSE_TIMEOUT
) -> dict[str, Any]:
    """Send any command to the master and return its answer.

    Args:
        run_directory: the node's.
        command: `{"command": NAME, …}`.
        timeout: seconds to wait for the answer.

    Raises:
        MasterNotResponding: the master does not answer in time.
        MasterNotRunning: there is no master.
        Refused: the master does not know the command, or cannot do it.
    """
    with _connect(run_directory) as connection:
        connection.settimeout(timeout)
        return _send_and_receive(connection, command, run_directory)


def _connect(run_directory: str | Path) -> socket.socket:
    """Connect to the master; one that starts, or ends, has no socket for a moment, which is waited for."""
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
    try:
        with control_address(run_directory) as address:
            connection.connect(address)
        _require_trusted_peer(connection, run_directory)
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError) as error:
        connection.close()
        raise MasterNotRunning(run_directory) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _require_trusted_peer(connection: socket.socket, run_directory: str | Path) -> None:
    """Refuse a socket that another user listens on. Root, which may ask everybody's nodes, has to know what it asks."""
    _, user, _ = struct.unpack(
        "iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII"))
    )
    if os.geteuid() != 0 and user not in {0, os.geteuid()}:
        raise ControlSocketNotTrusted(run_directory, user)


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
