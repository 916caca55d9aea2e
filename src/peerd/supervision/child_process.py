"""A child process of the master: how it is started, asked to stop, killed and reaped."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from datetime import UTC, datetime
from typing import Final

from peerd.runtime.os_processes import is_stopped, launch_command
from peerd.supervision import exits
from peerd.supervision.event_loop import FrameChannel
from peerd.supervision.exits import ExitCause, OomKillCounter, ProcessRecord
from peerd.supervision.plan import Kind, Plan

STARVED_FACTOR: Final = 3
"""How many times longer a process that is not stopped (SIGSTOP) may be silent."""
ABORT_TIMEOUT: Final = 2.0
"""Seconds between SIGABRT, on which a silent process prints its stacks, and SIGKILL."""
KILL_MARGIN: Final = 2.0
"""Seconds that a child has after its own hard deadline to end itself and print its stacks."""
REASONS_TO_DRAIN: Final = frozenset({exits.REPLACED, exits.SCALED})
"""Kinds of reasons to end that leave a process as long as it needs, if its kind drains."""


@dataclass(eq=False, repr=False)
class ChildProcess(ProcessRecord):
    """A living or just ended child, the leader of its own process group. The constructor starts it, or raises OSError.

    `generation` is the number of processes that the slot has had, this one included; `sockets` are the descriptors that
    it inherits, by name.

    Attributes:
        identity: how the agent identifies it, as it has reported.
        vitals: delay of its event loop, and what runs in it, as it has reported.
        sample: its memory and processor time, as the agent has measured them.
        stuck: attempts whose code ends only with the process, as it has reported; for the agent.
        kill_at: when it is killed unless it has become ready, or ended, by then.
    """

    plan: InitVar[Plan]
    kind: Kind
    slot: str
    generation: int
    now: InitVar[float]
    sockets: InitVar[Mapping[str, int]]
    identity: Mapping[str, object] | None = None
    vitals: Mapping[str, object] | None = None
    sample: Mapping[str, object] | None = None
    stuck: list[Mapping[str, object]] = field(default_factory=list)
    kill_at: float | None = None

    def __post_init__(self, plan: Plan, now: float, sockets: Mapping[str, int]) -> None:
        self.started_at = datetime.now(UTC)
        self.mark = exits.mark(self.slot, self.generation)
        self.ready = self.kind.role == "command"  # a command has no way to report it
        self._last_contact_at = now
        self.extend_boot(now)
        own_socket, child_socket = socket.socketpair()
        self.link = FrameChannel(own_socket)
        with contextlib.ExitStack() as undo:
            undo.callback(self.link.close)
            with child_socket:
                self._popen = self._spawn(plan, child_socket, sockets)
            self.pid = self._popen.pid
            undo.callback(self._popen.wait)
            undo.callback(self.kill)
            self.pidfd = os.pidfd_open(self.pid)
            undo.pop_all()
        if not self.ready:
            self._send_plan(plan, sockets)

    def __str__(self) -> str:
        return f"{self.slot} (process {self.pid})"

    def extend_boot(self, now: float) -> None:
        if not (self.ready or self.asked_to_stop):
            self.kill_at = now + self.kind.boot_timeout

    def mark_ready(self, identity: Mapping[str, object] | None) -> None:
        self.ready = True
        self.identity = identity
        if not self.asked_to_stop:
            self.kill_at = None

    def ask_to_leave(self, now: float, reason: ExitCause | None) -> None:
        """Ask it to end because it is replaced or removed, within its grace, or as late as its kind allows."""
        drains = self.kind.drains and reason is not None and reason.kind in REASONS_TO_DRAIN
        self.ask_to_stop(now, self.kind.drain_timeout if drains else self.kind.grace, reason)

    def ask_to_stop(self, now: float, grace: float | None, reason: ExitCause | None = None) -> None:
        """Ask it to end within `grace` seconds plus those for giving work back, after which it is killed.

        With None it may take any time. `reason` is why it is replaced or removed; None when the node stops.
        """
        self.asked_to_stop = True
        self.reason = self.reason or reason
        if not self.is_leaving:  # else it must end sooner
            self.kill_at = None if grace is None else self._kill_time(now, grace)
        if self.kind.role == "command":
            self._signal_group(signal.SIGTERM)
        else:
            self.link.send({"type": "stop", "grace": grace, "replaced": reason is not None})

    def _kill_time(self, now: float, grace: float) -> float:
        return now + grace + self.kind.release_time + KILL_MARGIN

    def is_draining(self, now: float) -> bool:
        """Whether it leaves, and has more time for that than its grace, or any time."""
        if self.out_of_time or not (self.retired == "recycle" or self.asked_to_stop):
            return False
        return self.kill_at is None or self.kill_at > self._kill_time(now, self.kind.grace)

    def retire(self, now: float, how: str) -> None:
        """Record that it stops by itself and wants to be replaced; only `drain` has no deadline."""
        self.retired = "recycle" if how == "drain" else how
        if how != "drain":
            self.kill_at = self._kill_time(now, self.kind.grace)

    def record_leaving(self, now: float) -> None:
        """Record that its interpreter ends, for which it has `release_time` seconds."""
        self.is_leaving = True
        latest = self._kill_time(now, 0.0)
        self.kill_at = latest if self.kill_at is None else min(self.kill_at, latest)

    def is_expected_exit(self, cause: ExitCause) -> bool:
        """Whether its exit was requested, so that its tasks are released without counting an attempt.

        A process requests it itself to be recycled, or for stuck handlers, whose attempts are reported one by one.
        Another cause that ends it first counts all the same.
        """
        recycled = self.retired == "recycle" and cause.kind in {exits.RECYCLED, exits.KILLED_AFTER_GRACE}
        ended_for_stuck = bool(self.stuck) and cause.kind in {exits.TAINTED, exits.KILLED_AFTER_GRACE}
        return self.asked_to_stop or recycled or ended_for_stuck

    def kill_if_overdue(self, now: float) -> None:
        if self.kill_at is not None and now >= self.kill_at:
            self.kill_at = None
            self.out_of_time = True
            self.kill()

    def record_contact(self, now: float) -> None:
        self._last_contact_at = now

    def kill_if_silent(self, now: float) -> bool:
        """Kill it if its control thread, which never blocks, has sent nothing for too long; return whether that begins.

        A process that is not stopped may be starved by load: it has `STARVED_FACTOR` times as long. SIGABRT comes
        first, on which it prints its stacks if it still can.
        """
        silent_for = now - self._last_contact_at
        if self.kind.role == "command" or silent_for < self.kind.silent_after:
            return False
        if self.killed_silence is None:
            if silent_for < STARVED_FACTOR * self.kind.silent_after and not is_stopped(self.pid):
                return False
            self.killed_silence = silent_for
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGABRT)
            return True
        if silent_for >= self.killed_silence + ABORT_TIMEOUT:
            self.kill()
        return False

    def silent_for(self, now: float) -> float | None:
        """Seconds since it has sent anything, which it does every two seconds; None for a command."""
        return None if self.kind.role == "command" else now - self._last_contact_at

    @property
    def leave_reason(self) -> str:
        return self.error or (self.reason.text if self.reason else "")

    def kill(self) -> None:
        """Kill its group, which would outlive it; the group's number cannot be reused before the process is reaped."""
        self._signal_group(signal.SIGKILL)

    def reap(self, oom_kills: OomKillCounter) -> ExitCause:
        """Kill the group of this ended process, reap it, close its descriptors, and return the cause of its exit."""
        self.kill()
        self.returncode = self._popen.wait()
        self.out_of_memory = oom_kills.has_killed()  # read for every exit, so that the next one sees only later kills
        os.close(self.pidfd)
        self.link.close()
        return exits.determine_cause(self)

    # ---------------------------------------------------------------- steps

    def _spawn(self, plan: Plan, child_socket: socket.socket, sockets: Mapping[str, int]) -> subprocess.Popen[bytes]:
        is_command = self.kind.role == "command"
        # -P keeps the current folder off the module path: a project's queue.py must not replace the library's.
        child = [sys.executable, "-P", "-m", "peerd.child", str(child_socket.fileno()), str(os.getpid())]
        return subprocess.Popen(
            launch_command(self.kind.command) if is_command else child,
            stdin=subprocess.DEVNULL,
            cwd=plan.project_directory if is_command else None,
            pass_fds=() if is_command else [child_socket.fileno(), *sockets.values()],
            env={**os.environ, **self.kind.environment, **self.mark},
            process_group=0,
        )

    def _send_plan(self, plan: Plan, sockets: Mapping[str, int]) -> None:
        of_plan = ("node", "project_directory", "log_file", "log_format", "run_directory")
        of_kind = ("role", "entry", "payload", "grace", "release_time", "hang_after")
        own = {"slot": self.slot, "kind": self.kind.name, "generation": self.generation, "sockets": dict(sockets)}
        fields = {name: getattr(plan, name) for name in of_plan} | {name: getattr(self.kind, name) for name in of_kind}
        self.link.send({"type": "plan", **own, **fields})

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)
