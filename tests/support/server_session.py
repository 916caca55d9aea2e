"""What the processes of one test run share: a folder, and the database servers, each started at its first use.

The controller (pytest itself, not an xdist worker) opens the run and closes it; servers are kept by `server_daemon`
processes, which end with the controller however it ends.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

import psutil

from peerd.testing import eventually
from tests.support.galera import JOIN_WITHIN, Galera
from tests.support.server import RUN_FOLDER_VARIABLE, DatabaseServer, ServerUnavailableError
from tests.support.server_daemon import RUN_LOCK
from tests.support.server_kinds import SHARED_SERVERS

_ROOT = Path(__file__).parents[2]


class ServerSession:
    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="peerd-", dir=_short_temporary_folder()))
        self.folder.chmod(0o755)  # PostgreSQL runs as another user when we are root
        self._alive: IO[str] = (self.folder / RUN_LOCK).open("w")
        fcntl.lockf(self._alive, fcntl.LOCK_EX)  # per process: a forked child does not keep it
        os.environ[RUN_FOLDER_VARIABLE] = str(self.folder)  # xdist's workers inherit it

    def close(self) -> None:
        os.environ.pop(RUN_FOLDER_VARIABLE, None)
        self._alive.close()
        for kept in self.folder.glob("*.kept"):
            with suppress(FileNotFoundError), kept.open() as lock:
                eventually(partial(acquires, lock), timeout=60, message=f"the daemon of {kept.stem} did not end")
        shutil.rmtree(self.folder, ignore_errors=True)


def processor_time_of_servers() -> float:
    folder = os.environ.get(RUN_FOLDER_VARIABLE, "")
    used = 0.0
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if any(folder and word.startswith(folder) for word in process.cmdline()):
                for one in (process, *process.children(recursive=True)):
                    used += sum(one.cpu_times()[:4])  # its own, and those of its processes that have ended
    return used


def shared_server(kind: str) -> DatabaseServer | Galera:
    """The run's server of this kind, started by the first process that needs it; raises ServerUnavailableError."""
    folder = Path(os.environ[RUN_FOLDER_VARIABLE])
    answer = folder / f"{kind}.json"
    with (folder / f"{kind}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not answer.exists():
            _start_daemon(kind, folder, answer)
    return _server_from(json.loads(answer.read_text()), kind, folder)


def _start_daemon(kind: str, folder: Path, answer: Path) -> None:
    output = folder / f"{kind}.keeper.log"
    with output.open("w") as log:
        how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, "start_new_session": True}
        command = [sys.executable, "-m", "tests.support.server_daemon", kind, str(folder)]
        server_daemon = subprocess.Popen(command, cwd=_ROOT, **how)
    _daemons.append(server_daemon)
    eventually(lambda: answer.exists() or server_daemon.poll() is not None, JOIN_WITHIN, message=f"{kind} has answered")
    if not answer.exists():
        raise RuntimeError(f"the daemon of {kind} failed:\n{output.read_text()}")


_daemons: list[subprocess.Popen[bytes]] = []  # not to be collected before they end: that is a ResourceWarning


def _server_from(answer: dict[str, Any], kind: str, folder: Path) -> DatabaseServer | Galera:
    if "unavailable" in answer:
        raise ServerUnavailableError(answer["unavailable"])
    if "ports" not in answer:
        raise RuntimeError(answer["broken"])
    found = SHARED_SERVERS[kind](folder / kind)
    found.ports = answer["ports"]
    return found


def acquires(lock: IO[str]) -> bool:
    with suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _short_temporary_folder() -> str:
    """Unix sockets' paths are limited to about a hundred bytes."""
    usual = tempfile.gettempdir()
    return usual if len(usual) < 40 else "/tmp"
