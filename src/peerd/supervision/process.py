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
from peerd.supervision.cause import Cause, Story, cause_of
from peerd.supervision.channel import Channel
from peerd.supervision.orphans import mark
from peerd.supervision.plan import Plan, SlotPlan

KILL_MARGIN: Final = 2.0
"""Seconds that a child has, after its own hard deadline, to end itself and show where it hangs."""


class Process:
    """A living or just ended child, the leader of its own process group."""

    def __init__(self, plan: Plan, slot: SlotPlan, generation: int, now: float) -> None:
        """Start it.

        Raises:
            OSError: it cannot be started.
        """
        self.slot = slot
        self.started_at = datetime.now(UTC)
        self.ready = slot.role == "command"  # which has no way to say so
        self.identity: Mapping[str, object] | None = None
        self.asked_to_stop = False
        self.retired = ""
        """`tainted` or `recycle` once the process has asked to be replaced."""
        self.error = ""
        """Why, in its own words."""
        self.mark = mark(slot.name, generation)
        self._out_of_time = False
        self._kill_at: float | None = None
        if not self.ready:
            self.go_on_booting(now)
        end, other = socket.socketpair()
        self.link = Channel(end)
        try:
            with other:
                self._popen = self._command(plan) if self.ready else self._child(other)
        except BaseException:
            self.link.close()
            raise
        self.pid = self._popen.pid
        self.pidfd = self._watchable()
        if not self.ready:
            self.link.send(_first_frame(plan, slot, generation))

    def __str__(self) -> str:
        return f"{self.slot.name} (process {self.pid})"

    @property
    def kill_at(self) -> float | None:
        """When it will be killed if it has not become ready, or ended, by then."""
        return self._kill_at

    def go_on_booting(self, now: float) -> None:
        """Give it the whole time for its boot, from now on."""
        if not (self.ready or self.asked_to_stop):
            self._kill_at = now + self.slot.boot_timeout

    def become_ready(self, identity: Mapping[str, object] | None) -> None:
        """Note that it has booted, and as whom the agent knows it."""
        self.ready = True
        self.identity = identity
        if not self.asked_to_stop:
            self._kill_at = None

    def ask_to_stop(self, now: float, grace: float) -> None:
        """Ask it to end within `grace` seconds, and the time to give back; it is killed afterwards."""
        self.asked_to_stop = True
        self._kill_at = now + grace + self.slot.give_back + KILL_MARGIN
        if self.slot.role == "command":
            self._signal_group(signal.SIGTERM)
        else:
            self.link.send({"type": "stop", "grace": grace})

    def retire(self, now: float, how: str) -> None:
        """Note that it is stopping by itself, for it wants to be replaced."""
        self.retired = how
        self._kill_at = now + self.slot.grace + self.slot.give_back + KILL_MARGIN

    def kill_if_out_of_time(self, now: float) -> None:
        """Kill it, with its group, if its time is up."""
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = None
            self._out_of_time = True
            self.kill()

    def kill(self) -> None:
        """Kill it with its group, which would not end with it; until it is reaped, the group's number is its own."""
        self._signal_group(signal.SIGKILL)

    def bury(self) -> Cause:
        """End the group of this ended process, reap it, close all that belonged to it, and say why it died."""
        self.kill()
        returncode = self._popen.wait()
        os.close(self.pidfd)
        self.link.close()
        return cause_of(self._story(returncode))

    # ---------------------------------------------------------------- steps

    def _child(self, other: socket.socket) -> subprocess.Popen[bytes]:
        # -P keeps the current folder off the module path: a project's queue.py must not replace the library's.
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "peerd.child", str(other.fileno()), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            pass_fds=[other.fileno()],
            env=self._environment(),
            process_group=0,
        )

    def _command(self, plan: Plan) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            launch_command(self.slot.command),
            stdin=subprocess.DEVNULL,
            cwd=plan.project_directory,
            env=self._environment(),
            process_group=0,
        )

    def _environment(self) -> dict[str, str]:
        environment = {**os.environ, **self.slot.environment, **self.mark}
        environment.pop("NOTIFY_SOCKET", None)  # only the master speaks with systemd
        return environment

    def _watchable(self) -> int:
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

    def _story(self, returncode: int) -> Story:
        return Story(
            returncode=returncode,
            ready=self.ready,
            asked_to_stop=self.asked_to_stop,
            out_of_time=self._out_of_time,
            tainted=self.retired == "tainted",
            error=self.error,
        )


def _first_frame(plan: Plan, slot: SlotPlan, generation: int) -> dict[str, object]:
    return {
        "type": "plan",
        "slot": slot.name,
        "kind": slot.kind,
        "role": slot.role,
        "generation": generation,
        "entry": slot.entry,
        "payload": slot.payload,
        "grace": slot.grace,
        "give_back": slot.give_back,
        "node": plan.node,
        "project_directory": plan.project_directory,
    }
