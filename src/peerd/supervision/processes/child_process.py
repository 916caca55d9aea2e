"""One child process, as its master holds it: spawned, linked, asked to stop, killed, and reaped."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from peerd.runtime.launch import launch_command
from peerd.runtime.process.process_tree import is_stopped
from peerd.supervision.control.channel import FrameChannel
from peerd.supervision.exits.exit_cause import (
    KILLED_AFTER_GRACE,
    RECYCLED,
    TAINTED,
    ExitCause,
    ExitFacts,
    determine_cause,
)
from peerd.supervision.exits.oom import OomKillCounter
from peerd.supervision.exits.orphans import mark
from peerd.supervision.plan import Kind, Plan

STARVED_FACTOR: Final = 3
"""How many times longer a process may be silent that is not stopped."""
ABORT_TIMEOUT: Final = 2.0
"""Seconds that a silent process has to show where it is before it is killed."""
KILL_MARGIN: Final = 2.0
"""Seconds that a child has, after its own hard deadline, to end itself and show where it hangs."""


class ChildProcess:
    """A living or just ended child, the leader of its own process group."""

    def __init__(
        self, plan: Plan, kind: Kind, slot: str, generation: int, now: float, sockets: Mapping[str, int]
    ) -> None:
        """Start it.

        Args:
            plan: the node's.
            kind: what it is.
            slot: its place.
            generation: how many processes the slot has had, this one included.
            now: the time, seconds.
            sockets: descriptors that it inherits, by name.

        Raises:
            OSError: it cannot be started.
        """
        self.kind = kind
        self.slot = slot
        self.generation = generation
        self.started_at = datetime.now(UTC)
        self.ready = kind.role == "command"  # which has no way to say so
        self.identity: Mapping[str, object] | None = None
        self.asked_to_stop = False
        self.retired = ""
        """`tainted`, `recycle` or `hung` once the process has asked to be replaced."""
        self.vitals: Mapping[str, object] | None = None
        """How its event loop answers and what runs in it, as it says itself."""
        self.sample: Mapping[str, object] | None = None
        """Its memory and processor time, as the agent has measured them."""
        self.error = ""
        """Why, in its own words."""
        self.stuck: list[Mapping[str, object]] = []
        """What it has said of attempts that only its own end ends; for the agent."""
        self.mark = mark(slot, generation)
        self._stop_reason: ExitCause | None = None
        self._last_contact_at = now
        self._silent_for: float | None = None
        self._out_of_time = False
        self._kill_at: float | None = None
        if not self.ready:
            self.extend_boot(now)
        own_socket, child_socket = socket.socketpair()
        self.link = FrameChannel(own_socket)
        try:
            with child_socket:
                self._popen = self._spawn_command(plan) if self.ready else self._spawn_child(child_socket, sockets)
        except BaseException:
            self.link.close()
            raise
        self.pid = self._popen.pid
        self.pidfd = self._open_pidfd()
        if not self.ready:
            self.link.send(_plan_frame(plan, kind, slot, generation, sockets))

    def __str__(self) -> str:
        return f"{self.slot} (process {self.pid})"

    @property
    def kill_at(self) -> float | None:
        """When it will be killed if it has not become ready, or ended, by then."""
        return self._kill_at

    def extend_boot(self, now: float) -> None:
        """Give it the whole time for its boot, from now on."""
        if not (self.ready or self.asked_to_stop):
            self._kill_at = now + self.kind.boot_timeout

    def mark_ready(self, identity: Mapping[str, object] | None) -> None:
        """Note that it has booted, and as whom the agent knows it."""
        self.ready = True
        self.identity = identity
        if not self.asked_to_stop:
            self._kill_at = None

    def ask_to_stop(self, now: float, grace: float, reason: ExitCause | None = None) -> None:
        """Ask it to end within `grace` seconds, and the time to give back; it is killed afterwards.

        Args:
            now: the time, seconds.
            grace: seconds for what runs.
            reason: why, when another process takes its place; None when the node stops.
        """
        self.asked_to_stop = True
        self._stop_reason = self._stop_reason or reason
        self._kill_at = now + grace + self.kind.give_back + KILL_MARGIN
        if self.kind.role == "command":
            self._signal_group(signal.SIGTERM)
        else:
            self.link.send({"type": "stop", "grace": grace, "replaced": reason is not None})

    def drain(self) -> None:
        """Note that it is being recycled: it finishes what it has, however long that takes, and then stops."""
        self.retired = "recycle"

    @property
    def is_draining(self) -> bool:
        """Whether it finishes what it has without a deadline."""
        return self.retired == "recycle" and self._kill_at is None and not self.asked_to_stop

    def retire(self, now: float, how: str) -> None:
        """Note that it is stopping by itself, for it wants to be replaced."""
        self.retired = how
        self._kill_at = now + self.kind.grace + self.kind.give_back + KILL_MARGIN

    def is_expected_exit(self, cause: ExitCause) -> bool:
        """Whether its end was asked for, so that what it held is given back and not counted.

        It may have asked for that itself: to be recycled, or for handlers that do not end, whose attempts are told one
        by one. Then what kills it before counts all the same.
        """
        recycled = self.retired == "recycle" and cause.kind in {RECYCLED, KILLED_AFTER_GRACE}
        ended_for_stuck = bool(self.stuck) and cause.kind in {TAINTED, KILLED_AFTER_GRACE}
        return self.asked_to_stop or recycled or ended_for_stuck

    def kill_if_overdue(self, now: float) -> None:
        """Kill it, with its group, if its time is up."""
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = None
            self._out_of_time = True
            self.kill()

    def record_contact(self, now: float) -> None:
        """Note that it has said something."""
        self._last_contact_at = now

    def kill_if_silent(self, now: float) -> None:
        """Kill it if even its watching thread, which waits for nothing, has been silent for too long.

        One that is not stopped may only be starved, on a machine with too much to do: it has three times as long. It is
        asked to abort first, which shows where its threads are if it can still do that.
        """
        silent_for = now - self._last_contact_at
        if self.kind.role == "command" or silent_for < self.kind.silent_after:
            return
        if self._silent_for is None and (silent_for >= STARVED_FACTOR * self.kind.silent_after or is_stopped(self.pid)):
            self._silent_for = silent_for
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGABRT)
        elif self._silent_for is not None and silent_for >= self._silent_for + ABORT_TIMEOUT:
            self.kill()

    def silent_for(self, now: float) -> float | None:
        """Seconds since it has said anything, which it does every two seconds; None for a command, which cannot."""
        return None if self.kind.role == "command" else now - self._last_contact_at

    @property
    def leave_reason(self) -> str:
        """Why it is to end, in words, as far as somebody has said so."""
        return self.error or (self._stop_reason.text if self._stop_reason else "")

    @property
    def is_silent(self) -> bool:
        """Whether it is being killed for its silence."""
        return self._silent_for is not None

    def kill(self) -> None:
        """Kill it with its group, which would not end with it; until it is reaped, the group's number is its own."""
        self._signal_group(signal.SIGKILL)

    def reap(self, out_of_memory: OomKillCounter) -> ExitCause:
        """End the group of this ended process, reap it, close all that belonged to it, and say why it died."""
        self.kill()
        returncode = self._popen.wait()
        has_killed = out_of_memory.has_killed()  # whoever it was: only what happens from here on counts for the next
        os.close(self.pidfd)
        self.link.close()
        return determine_cause(self._exit_facts(returncode, out_of_memory=has_killed))

    # ---------------------------------------------------------------- steps

    def _spawn_child(self, child_socket: socket.socket, sockets: Mapping[str, int]) -> subprocess.Popen[bytes]:
        # -P keeps the current folder off the module path: a project's queue.py must not replace the library's.
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "peerd.child", str(child_socket.fileno()), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            pass_fds=[child_socket.fileno(), *sockets.values()],
            env=self._environment(),
            process_group=0,
        )

    def _spawn_command(self, plan: Plan) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            launch_command(self.kind.command),
            stdin=subprocess.DEVNULL,
            cwd=plan.project_directory,
            env=self._environment(),
            process_group=0,
        )

    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self.kind.environment, **self.mark}

    def _open_pidfd(self) -> int:
        try:
            return os.pidfd_open(self.pid)
        except OSError:
            self.kill()
            self._popen.wait()
            self.link.close()
            raise

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _exit_facts(self, returncode: int, *, out_of_memory: bool) -> ExitFacts:
        return ExitFacts(
            returncode=returncode,
            ready=self.ready,
            asked_to_stop=self.asked_to_stop,
            out_of_time=self._out_of_time,
            reason=self._stop_reason,
            silent_for=self._silent_for,
            out_of_memory=out_of_memory,
            retired=self.retired,
            error=self.error,
        )


def _plan_frame(plan: Plan, kind: Kind, slot: str, generation: int, sockets: Mapping[str, int]) -> dict[str, object]:
    return {
        "type": "plan",
        "slot": slot,
        "kind": kind.name,
        "role": kind.role,
        "generation": generation,
        "entry": kind.entry,
        "payload": kind.payload,
        "grace": kind.grace,
        "give_back": kind.give_back,
        "hang_after": kind.hang_after,
        "node": plan.node,
        "project_directory": plan.project_directory,
        "log_file": plan.log_file,
        "log_format": plan.log_format,
        "run_directory": plan.run_directory,
        "sockets": dict(sockets),
    }
