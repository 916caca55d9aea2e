"""Computes the plan anew in a short-lived process, because the master itself loads no configuration."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from typing import Final

from peerd.supervision.event_loop import SelectorLoop
from peerd.supervision.plan import Plan, PlanError

PLANNER_TIMEOUT: Final = 60.0
"""Seconds after which the planner is killed."""
_MAX_OUTPUT_BYTES: Final = 64 * 1024 * 1024
_MAX_ERROR_CHARS: Final = 4000


class PlannerProcess:
    """One run of a plan's planner. The constructor starts it, or raises OSError.

    `on_planned` is called once with the new plan, or with None and the error.
    """

    def __init__(
        self, plan: Plan, loop: SelectorLoop, on_planned: Callable[[Plan | None, str], None], now: float
    ) -> None:
        self._loop = loop
        self._on_planned = on_planned
        self._deadline = now + PLANNER_TIMEOUT
        self._timed_out = False
        self._popen = subprocess.Popen(
            plan.planner,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=plan.project_directory,  # the master's own may have been removed, with an earlier release
            process_group=0,
        )
        self.pid = self._popen.pid
        assert self._popen.stdout is not None
        assert self._popen.stderr is not None
        self._pipes = {pipe.fileno(): pipe for pipe in (self._popen.stdout, self._popen.stderr)}
        self._buffers = {fd: bytearray() for fd in self._pipes}
        self._open = set(self._pipes)
        for fd in self._pipes:
            os.set_blocking(fd, False)
            loop.register(fd, partial(self._read, fd))

    @property
    def is_done(self) -> bool:
        return not self._open

    def advance(self, now: float) -> None:
        if now >= self._deadline and not self.is_done:
            self._timed_out = True
            self._terminate()

    def kill(self) -> None:
        """Kill it; its plan is no longer needed."""
        self._on_planned = lambda *_: None
        self._terminate()

    def _terminate(self) -> None:
        """Kill its group and close its pipes, which a program in a session of its own may hold open."""
        if self._open:  # otherwise it has been reaped, and its process id may be in use again
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
        if self._open:
            return
        try:  # both pipes are closed: it has ended, or is about to
            status = self._popen.wait(0.5)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            status = self._popen.wait()
        for pipe in self._pipes.values():
            pipe.close()
        self._on_planned(*self._parse_result(status))

    def _parse_result(self, status: int) -> tuple[Plan | None, str]:
        output, errors = self._buffers.values()
        if self._timed_out:
            return None, f"the planner took more than {PLANNER_TIMEOUT:g} s"
        if status != 0:
            text = errors.decode(errors="replace").strip()[-_MAX_ERROR_CHARS:]
            return None, text or f"the planner ended with status {status} and printed no error"
        try:
            return Plan.parse(json.loads(bytes(output))), ""
        except (PlanError, ValueError, TypeError, AttributeError) as error:
            return None, f"the planner printed no plan: {error}"
