"""The servers whose workers are replaced under load: how each is started, told to replace, and looked at."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

import psutil

from peerd.supervision import control_client

WORKERS: Final = 2
WITHIN: Final = 60.0
APP: Final = "bench.web_app:app"
ROOT: Final = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that runs."""

    name: str
    master: psutil.Process
    port: int
    workers: Callable[[], set[int]]
    replace: Callable[[], None]

    def replace_all(self) -> None:
        """Have all workers replaced, and wait until the old ones are gone."""
        before = self.workers()
        self.replace()
        wait_until(lambda: len(self.workers()) >= WORKERS and not any(map(psutil.pid_exists, before)), self.name)


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Look every 50 ms, for a minute at the most."""
    deadline = time.monotonic() + WITHIN
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: its old workers were not replaced within {WITHIN:g} s")
        time.sleep(0.05)


@contextmanager
def peerd(folder: Path) -> Iterator[RunningServer]:
    """A node whose only section is [web.web]."""
    port = free_port()
    (folder / "peerd.toml").write_text(
        f'[node]\nname = "bench"\n[web.web]\napp = "{APP}"\nbind = "127.0.0.1:{port}"\nprocesses = {WORKERS}\n'
    )
    run_directory = folder / ".peerd" / "bench"

    def workers() -> set[int]:
        slots = control_client.status(run_directory)["slots"]
        return {slot["pid"] for slot in slots if slot["kind"] == "web" and slot["state"] == "RUNNING"}

    def replace() -> None:
        control_client.send_command(run_directory, {"command": "reload", "kinds": ["web"]})

    command = [sys.executable, "-m", "peerd", "up", "--migrate", "--config", str(folder / "peerd.toml")]
    with _running(command, folder) as master:
        yield RunningServer("peerd", master, port, workers, replace)


@contextmanager
def uvicorn(folder: Path) -> Iterator[RunningServer]:
    """Uvicorn's own process manager."""
    with _signalled("uvicorn", folder, "--workers", str(WORKERS), "--no-access-log", "--port", "{port}", APP) as server:
        yield server


@contextmanager
def gunicorn(folder: Path) -> Iterator[RunningServer]:
    """Gunicorn with its ASGI worker."""
    with _signalled("gunicorn", folder, "-w", str(WORKERS), "-k", "asgi", "-b", "127.0.0.1:{port}", APP) as server:
        yield server


@contextmanager
def granian(folder: Path) -> Iterator[RunningServer]:
    """Granian."""
    words = ("--interface", "asgi", "--workers", str(WORKERS), "--respawn-interval", "0.5", "--port", "{port}", APP)
    with _signalled("granian", folder, *words) as server:
        yield server


SERVERS: Final = {"peerd": peerd, "uvicorn": uvicorn, "gunicorn": gunicorn, "granian": granian}


def version_of(name: str) -> str:
    """The version that is measured."""
    return version(name)


@contextmanager
def _signalled(name: str, folder: Path, *words: str) -> Iterator[RunningServer]:
    """A server that replaces its workers at SIGHUP."""
    port = free_port()
    command = [sys.executable, "-m", name, *(word.format(port=port) for word in words)]
    with _running(command, folder) as master:

        def workers() -> set[int]:
            return {child.pid for child in master.children() if not _is_helper(child)}

        yield RunningServer(name, master, port, workers, lambda: master.send_signal(signal.SIGHUP))


def _is_helper(child: psutil.Process) -> bool:
    """Whether it is no worker: the keeper of multiprocessing's resources, or one that has ended."""
    try:
        return child.status() == psutil.STATUS_ZOMBIE or "resource_tracker" in " ".join(child.cmdline())
    except psutil.NoSuchProcess:
        return True


@contextmanager
def _running(command: list[str], folder: Path) -> Iterator[psutil.Process]:
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        try:
            process.wait(WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def answers(port: int) -> bool:
    """Whether somebody answers there."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5.0) as one:
            one.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            return one.recv(12) == b"HTTP/1.1 200"
    except OSError:
        return False


def free_port() -> int:
    """A port that nobody listens on at the moment."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
