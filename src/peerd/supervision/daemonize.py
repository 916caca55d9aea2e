"""Starts a node in the background, and waits until it is ready or has failed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final, NoReturn

from peerd.runtime.os_processes import STOP_SIGNALS
from peerd.runtime.process import exit_codes
from peerd.supervision import control_client
from peerd.supervision.reporting import CANNOT_START

POLL_INTERVAL: Final = 0.1
STOP_TIMEOUT: Final = 20.0
"""Seconds that a node which did not become ready in time has for a fast stop, before it is killed."""


class NodeStartError(Exception):
    """The node has not started; the text is the cause that it has logged.

    Attributes:
        status: the exit status of its master, or `exit_codes.BOOT_FAILED` if it was not ready in time.
        output: the last lines that it has written.
    """

    def __init__(self, why: str, status: int, output: list[str]) -> None:
        self.status = status
        self.output = output
        super().__init__(why)


def start_in_background(plan: Mapping[str, Any], timeout: float) -> dict[str, Any]:
    """Start a node in a session of its own, and return its status when it is ready.

    It has no input, the plan's log file as its output, and the project's folder as its working folder.

    Raises:
        NodeStartError: it has ended, or was stopped because it was not ready within `timeout` seconds.
        OSError: the process cannot be started.
    """
    log = Path(plan["log_file"])
    log_offset = log.stat().st_size if log.exists() else 0
    with tempfile.TemporaryFile() as early_output, master_command_line(plan) as (command, fd):
        process = subprocess.Popen(
            command,
            pass_fds=[fd],
            stdin=subprocess.DEVNULL,
            stdout=early_output,  # until it has opened its log
            stderr=early_output,
            cwd=plan["project_directory"],
            start_new_session=True,
        )
        try:
            return _wait_until_ready(
                process, plan["run_directory"], timeout, lambda: _read_output(early_output, log, log_offset)
            )
        finally:
            process.returncode = process.returncode or 0  # it keeps running: Popen must not warn about it


def _wait_until_ready(
    process: subprocess.Popen[bytes], run_directory: str, timeout: float, read_output: Callable[[], list[str]]
) -> dict[str, Any]:
    deadline = time.monotonic() + timeout
    status: dict[str, Any] | None = None
    try:
        while time.monotonic() < deadline:
            _require_running(process, read_output)
            with contextlib.suppress(control_client.MasterNotRunning, OSError):
                found = control_client.status(run_directory)
                status = found if found["pid"] == process.pid else status
            if status and status["state"] == "running":
                return status
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL_INTERVAL)
    except KeyboardInterrupt:
        _stop(process, run_directory)
        raise
    _stop(process, run_directory)
    text = f"it was not ready in time, and was stopped{_describe_unready_slots(status)}"
    raise NodeStartError(text, exit_codes.BOOT_FAILED, read_output())


def _require_running(process: subprocess.Popen[bytes], read_output: Callable[[], list[str]]) -> None:
    status = process.poll()
    if status is None:
        return
    output = read_output()
    cause = next(filter(None, map(_find_start_error, output)), "")
    if not cause and status == exit_codes.OK:
        cause = "it was stopped before it was ready"
    raise NodeStartError(cause or f"its master ended with status {status}", status or exit_codes.BOOT_FAILED, output)


def _stop(process: subprocess.Popen[bytes], run_directory: str) -> None:
    with contextlib.suppress(control_client.MasterNotRunning, OSError):
        control_client.stop(run_directory, fast=True, timeout=STOP_TIMEOUT)
    try:
        process.wait(1.0)
    except subprocess.TimeoutExpired:  # its children detect that, and end
        process.kill()
        process.wait()


def _find_start_error(line: str) -> str:
    """Return the cause of a failed start if a line of the master's log, in either format, contains it."""
    with contextlib.suppress(ValueError):
        entry = json.loads(line)
        if isinstance(entry, dict) and entry.get("slot") == "master":
            return str(entry.get("event")).partition(CANNOT_START)[2]
    return line.partition(f": {CANNOT_START}")[2]


def _describe_unready_slots(status: Mapping[str, Any] | None) -> str:
    missing = [
        f"{slot['name']} {slot['state']}" + (f" ({slot['error']})" if slot["error"] else "")
        for slot in (status["slots"] if status else ())
        if slot["state"] not in {"RUNNING", "EXITED"}
    ]
    return f"; it had waited for {', '.join(missing)}" if missing else ""


def _read_output(early_output: IO[bytes], log: Path, log_offset: int, max_bytes: int = 64 * 1024) -> list[str]:
    """Return the last lines that the node has written since it was started."""
    early_output.seek(0)
    text = early_output.read(max_bytes)
    with contextlib.suppress(OSError), log.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(log_offset if size >= log_offset else 0, size - max_bytes))
        text += file.read(max_bytes)
    return text.decode(errors="replace").splitlines()


# ---------------------------------------------------------------- master launch


@contextlib.contextmanager
def master_command_line(plan: Mapping[str, object]) -> Iterator[tuple[list[str], int]]:
    """Yield the command line of a plan's master, and the descriptor that it must inherit."""
    fd = os.memfd_create("peerd-plan", 0)
    try:
        with os.fdopen(os.dup(fd), "wb") as file:
            file.write(json.dumps(plan).encode())
        os.lseek(fd, 0, os.SEEK_SET)
        # -P keeps the current folder off the module path: a project's queue.py must not replace the library's.
        yield [sys.executable, "-P", "-m", "peerd.supervision.master", str(fd)], fd
    finally:
        os.close(fd)


def exec_master(plan: Mapping[str, object]) -> NoReturn:
    """Replace this process by the master of a plan (see `peerd.supervision.plan`), in a fresh interpreter."""
    with master_command_line(plan) as (command, _):
        sys.stdout.flush()
        sys.stderr.flush()
        # The master unblocks the signals when it can handle them; the first process of a container would lose them.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        os.execv(command[0], command)  # noqa: S606 - no shell is wanted
