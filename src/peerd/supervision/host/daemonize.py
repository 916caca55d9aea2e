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
from peerd.supervision.host.launch import command_of_a_master

LOOK_EVERY: Final = 0.1
STOP_WITHIN: Final = 20.0
"""Seconds that a node which did not become ready in time has to go, with no grace for anything, before it is killed."""


class DidNotStart(Exception):
    """The node is not there: why, in its own words, and the last lines that it wrote.

    Attributes:
        status: the exit status of its master, or `exits.BOOT_FAILED` where it was not ready in time.
        said: what it wrote, the last lines.
    """

    def __init__(self, why: str, status: int, said: list[str]) -> None:
        self.status = status
        self.said = said
        super().__init__(why)


def start_in_background(plan: Mapping[str, Any], timeout: float) -> dict[str, Any]:
    """Start a node detached from everything that started it, and return its status when it is ready.

    It has a session of its own, no input, and the plan's log file for its output. Its working folder is the project's.

    Args:
        plan: as JSON has it, with a log file.
        timeout: seconds that it has to become ready; then it is stopped again.

    Raises:
        DidNotStart: it has ended, or was stopped because its time was up.
        OSError: it could not even be tried.
    """
    log = Path(plan["log_file"])
    begin = log.stat().st_size if log.exists() else 0
    with tempfile.TemporaryFile() as early:
        process = _spawn(plan, early)
        try:
            return _Start(process, plan, lambda: _said(early, log, begin)).wait(time.monotonic() + timeout)
        finally:
            process.returncode = process.returncode or 0  # it is let go: it lives on, and nobody here waits for it


def _spawn(plan: Mapping[str, Any], early: IO[bytes]) -> subprocess.Popen[bytes]:
    with command_of_a_master(plan) as (command, fd):
        return subprocess.Popen(
            command,
            pass_fds=[fd],
            stdin=subprocess.DEVNULL,
            stdout=early,  # what it says before it has its log
            stderr=early,
            cwd=plan["project_directory"],
            start_new_session=True,
        )


class _Start:
    """One try to start a node."""

    def __init__(
        self, process: subprocess.Popen[bytes], plan: Mapping[str, Any], said: Callable[[], list[str]]
    ) -> None:
        self._process = process
        self._run_directory = plan["run_directory"]
        self._said = said
        self._status: dict[str, Any] | None = None

    def wait(self, deadline: float) -> dict[str, Any]:
        """Wait until the node is ready, or has ended, or its time is up; or somebody gives the wait up."""
        try:
            while time.monotonic() < deadline:
                self._require_life()
                self._look()
                if self._status and self._status["state"] == "running":
                    return self._status
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(LOOK_EVERY)
        except KeyboardInterrupt:
            self._stop()
            raise
        waited_for = _not_ready(self._status)
        self._stop()
        raise DidNotStart(
            f"it was not ready in time, and was stopped{waited_for}", exit_codes.BOOT_FAILED, self._said()
        )

    def _look(self) -> None:
        with contextlib.suppress(control_client.NotRunning, OSError):
            status = control_client.status(self._run_directory)
            if status["pid"] == self._process.pid:
                self._status = status

    def _require_life(self) -> None:
        status = self._process.poll()
        if status is None:
            return
        said = self._said()
        causes = [cause for line in said if (cause := _cause_in(line))]
        ended = (
            "it was stopped before it was ready"
            if status == exit_codes.OK
            else f"its master ended with status {status}"
        )
        raise DidNotStart(causes[0] if causes else ended, status or exit_codes.BOOT_FAILED, said)

    def _stop(self) -> None:
        with contextlib.suppress(control_client.NotRunning, OSError):
            control_client.stop(self._run_directory, fast=True, timeout=STOP_WITHIN)
        try:
            self._process.wait(1.0)
        except subprocess.TimeoutExpired:  # its processes notice, and end by themselves
            self._process.kill()
            self._process.wait()


def _cause_in(line: str) -> str:
    """Why a node cannot start, if a line of its master says so, in either form of the log."""
    with contextlib.suppress(ValueError):
        entry = json.loads(line)
        if isinstance(entry, dict) and entry.get("slot") == "master":
            return str(entry.get("event")).partition(CANNOT_START)[2]
    return line.partition(f": {CANNOT_START}")[2]


def _not_ready(status: Mapping[str, Any] | None) -> str:
    if status is None:
        return ""
    missing = [
        f"{slot['name']} {slot['state']}" + (f" ({slot['error']})" if slot["error"] else "")
        for slot in status["slots"]
        if slot["state"] not in {"RUNNING", "EXITED"}
    ]
    return f"; it had waited for {', '.join(missing)}" if missing else ""


def _said(early: IO[bytes], log: Path, begin: int, most: int = 64 * 1024) -> list[str]:
    """What the node has written since it was started, as lines; of much, the last."""
    early.seek(0)
    text = early.read(most)
    with contextlib.suppress(OSError), log.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(begin if size >= begin else 0, size - most))
        text += file.read(most)
    return text.decode(errors="replace").splitlines()
