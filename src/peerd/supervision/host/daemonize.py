"""Starts a node in the background, and waits until it is ready or says why it is not."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Final

from peerd.runtime.process import exit_codes
from peerd.supervision.console import CANNOT_START
from peerd.supervision.control import control_client
from peerd.supervision.host.launch import master_command_line

POLL_INTERVAL: Final = 0.1
STOP_TIMEOUT: Final = 20.0
"""Seconds that a node which did not become ready in time has to go, with no grace for anything, before it is killed."""


class NodeStartError(Exception):
    """The node is not there: why, in its own words, and the last lines that it wrote.

    Attributes:
        status: the exit status of its master, or `exits.BOOT_FAILED` where it was not ready in time.
        output: what it wrote, the last lines.
    """

    def __init__(self, why: str, status: int, output: list[str]) -> None:
        self.status = status
        self.output = output
        super().__init__(why)


def start_in_background(plan: Mapping[str, Any], timeout: float) -> dict[str, Any]:
    """Start a node detached from everything that started it, and return its status when it is ready.

    It has a session of its own, no input, and the plan's log file for its output. Its working folder is the project's.

    Args:
        plan: as JSON has it, with a log file.
        timeout: seconds that it has to become ready; then it is stopped again.

    Raises:
        NodeStartError: it has ended, or was stopped because its time was up.
        OSError: it could not even be tried.
    """
    log = Path(plan["log_file"])
    log_offset = log.stat().st_size if log.exists() else 0
    with tempfile.TemporaryFile() as early_output:
        process = _spawn_master(plan, early_output)
        try:
            return _StartAttempt(process, plan, lambda: _read_output(early_output, log, log_offset)).wait(
                time.monotonic() + timeout
            )
        finally:
            process.returncode = process.returncode or 0  # it is let go: it lives on, and nobody here waits for it


def _spawn_master(plan: Mapping[str, Any], early_output: IO[bytes]) -> subprocess.Popen[bytes]:
    with master_command_line(plan) as (command, fd):
        return subprocess.Popen(
            command,
            pass_fds=[fd],
            stdin=subprocess.DEVNULL,
            stdout=early_output,  # what it says before it has its log
            stderr=early_output,
            cwd=plan["project_directory"],
            start_new_session=True,
        )


class _StartAttempt:
    """One try to start a node."""

    def __init__(
        self, process: subprocess.Popen[bytes], plan: Mapping[str, Any], output: Callable[[], list[str]]
    ) -> None:
        self._process = process
        self._run_directory = plan["run_directory"]
        self._read_output = output
        self._status: dict[str, Any] | None = None

    def wait(self, deadline: float) -> dict[str, Any]:
        """Wait until the node is ready, or has ended, or its time is up; or somebody gives the wait up."""
        try:
            while time.monotonic() < deadline:
                self._require_running()
                self._poll_status()
                if self._status and self._status["state"] == "running":
                    return self._status
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(POLL_INTERVAL)
        except KeyboardInterrupt:
            self._stop()
            raise
        waited_for = _describe_unready_slots(self._status)
        self._stop()
        raise NodeStartError(
            f"it was not ready in time, and was stopped{waited_for}", exit_codes.BOOT_FAILED, self._read_output()
        )

    def _poll_status(self) -> None:
        with contextlib.suppress(control_client.MasterNotRunning, OSError):
            status = control_client.status(self._run_directory)
            if status["pid"] == self._process.pid:
                self._status = status

    def _require_running(self) -> None:
        status = self._process.poll()
        if status is None:
            return
        output = self._read_output()
        causes = [cause for line in output if (cause := _find_start_error(line))]
        ended = (
            "it was stopped before it was ready"
            if status == exit_codes.OK
            else f"its master ended with status {status}"
        )
        raise NodeStartError(causes[0] if causes else ended, status or exit_codes.BOOT_FAILED, output)

    def _stop(self) -> None:
        with contextlib.suppress(control_client.MasterNotRunning, OSError):
            control_client.stop(self._run_directory, fast=True, timeout=STOP_TIMEOUT)
        try:
            self._process.wait(1.0)
        except subprocess.TimeoutExpired:  # its processes notice, and end by themselves
            self._process.kill()
            self._process.wait()


def _find_start_error(line: str) -> str:
    """Why a node cannot start, if a line of its master says so, in either form of the log."""
    with contextlib.suppress(ValueError):
        entry = json.loads(line)
        if isinstance(entry, dict) and entry.get("slot") == "master":
            return str(entry.get("event")).partition(CANNOT_START)[2]
    return line.partition(f": {CANNOT_START}")[2]


def _describe_unready_slots(status: Mapping[str, Any] | None) -> str:
    if status is None:
        return ""
    missing = [
        f"{slot['name']} {slot['state']}" + (f" ({slot['error']})" if slot["error"] else "")
        for slot in status["slots"]
        if slot["state"] not in {"RUNNING", "EXITED"}
    ]
    return f"; it had waited for {', '.join(missing)}" if missing else ""


def _read_output(early_output: IO[bytes], log: Path, log_offset: int, max_bytes: int = 64 * 1024) -> list[str]:
    """What the node has written since it was started, as lines; of much, the last."""
    early_output.seek(0)
    text = early_output.read(max_bytes)
    with contextlib.suppress(OSError), log.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(log_offset if size >= log_offset else 0, size - max_bytes))
        text += file.read(max_bytes)
    return text.decode(errors="replace").splitlines()
