"""Has the plan computed once more, by a short-lived process: the master itself loads no configuration."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from peerd.supervision.event_loop import SelectorLoop
from peerd.supervision.plan import Plan, PlanError

PLANNER_TIMEOUT: Final = 60.0
"""Seconds that it may take."""
_MAX_OUTPUT_BYTES: Final = 64 * 1024 * 1024
_MAX_ERROR_CHARS: Final = 4000

OnPlanned = Callable[[Plan | None, str], None]
"""Gets the new plan, or None and why there is none."""


class PlannerProcess:
    """One run of a plan's planner.

    Args:
        plan: the present one.
        loop: where its output is read.
        on_planned: called once, with what came of it.
        now: the time, seconds.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, plan: Plan, loop: SelectorLoop, on_planned: OnPlanned, now: float) -> None:
        self._loop = loop
        self._on_planned = on_planned
        self._deadline = now + PLANNER_TIMEOUT
        self._timed_out = False
        self._popen = subprocess.Popen(
            plan.planner, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0
        )
        self.pid = self._popen.pid
        assert self._popen.stdout is not None
        assert self._popen.stderr is not None
        self._buffers = {self._popen.stdout.fileno(): bytearray(), self._popen.stderr.fileno(): bytearray()}
        self._output, self._errors = self._buffers.values()
        self._open = set(self._buffers)
        for fd in self._buffers:
            os.set_blocking(fd, False)
            loop.register(fd, partial(self._read, fd))

    @property
    def is_done(self) -> bool:
        """Whether it has ended."""
        return not self._open

    def advance(self, now: float) -> None:
        """End it if it takes too long."""
        if now >= self._deadline and not self.is_done:
            self._timed_out = True
            self._terminate()

    def kill(self) -> None:
        """End it; nobody wants its plan any more."""
        self._on_planned = lambda *_: None
        self._terminate()

    def _terminate(self) -> None:
        """Kill it with its group, and read no more: what it has started in a session of its own may hold its pipes."""
        if self._open:  # else it has been reaped, and its number may be another's
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        for fd in list(self._open):
            self._close(fd)

    def _read(self, fd: int) -> None:
        buffer = self._buffers[fd]
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return
        buffer += data
        if not data or len(buffer) > _MAX_OUTPUT_BYTES:
            self._close(fd)

    def _close(self, fd: int) -> None:
        self._open.discard(fd)
        self._loop.unregister(fd)
        if not self._open:
            self._finish()

    def _finish(self) -> None:
        """Both its pipes are closed: it has nothing more to say, and is not waited for."""
        try:
            status = self._popen.wait(0.5)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            status = self._popen.wait()
        for pipe in (self._popen.stdout, self._popen.stderr):
            if pipe:
                pipe.close()
        self._on_planned(*self._parse_result(status))

    def _parse_result(self, status: int) -> tuple[Plan | None, str]:
        if self._timed_out:
            return None, f"the planner took more than {PLANNER_TIMEOUT:g} s"
        if status != 0:
            errors = self._errors.decode(errors="replace").strip()[-_MAX_ERROR_CHARS:]
            return None, errors or f"the planner ended with status {status}, and no word"
        try:
            data: Mapping[str, Any] = json.loads(bytes(self._output))
            return Plan.parse(data), ""
        except (PlanError, ValueError, TypeError, AttributeError) as error:
            return None, f"the planner printed no plan: {error}"
