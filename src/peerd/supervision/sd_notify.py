"""systemd's notification protocol, sd_notify(3): the master reports the state of the node to the service manager.

A notification is one datagram of `NAME=value` lines to the socket that the environment names; without it, nothing is
sent. `notify` compares the node's condition with the last one that was sent, and sends what has changed.
"""

from __future__ import annotations

import socket
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Final

from peerd.supervision.process_table import ProcessTable, SlotEntry
from peerd.supervision.slot import SlotState

EXTEND_INTERVAL: Final = 10.0
EXTEND_BY: Final = 30.0
"""Seconds: a start, stop or reload extends its time by so much, so often; so a hanging one is still detected."""

RETRY_DELAY: Final = 1.0
"""Seconds until a notification that failed, or was withheld, is tried again."""

AGENT_LOST_AFTER: Final = 20
"""Consecutive failures after which the agent counts as lost; about eight minutes with the longest back-off."""


@dataclass(frozen=True, slots=True)
class NodeCondition:
    """The node's phase (`starting`, `running`, `stopping`), a status line, and whether it reloads and is healthy.

    Attributes:
        healthy: whether a restart would not help; otherwise the watchdog is not fed.
    """

    phase: str
    text: str
    reloading: bool = False
    healthy: bool = True

    @property
    def is_busy(self) -> bool:
        """Whether it does something for which systemd has a timeout."""
        return self.phase != "running" or self.reloading


def build_condition(phase: str, table: ProcessTable, now: float, *, reloading: bool) -> NodeCondition:
    """Return the condition of a node; its status line names the slots without a running process."""
    states = [(entry.slot.name, entry.slot.state) for entry in table.entries if entry.wanted or entry.process]
    running = sum(state is SlotState.RUNNING for _, state in states)
    text = f"{'reloading' if reloading else phase}: {running} of {len(states)} processes run"
    if waiting := [f"{name} {state}" for name, state in states if state in {SlotState.BACKOFF, SlotState.STARTING}]:
        text += f"; {', '.join(waiting)}"
    return NodeCondition(phase, text, reloading, _is_healthy(table.agent, now))


def _is_healthy(agent: SlotEntry | None, now: float) -> bool:
    """Return False if the agent keeps failing: exits are then not reported, and tasks of dead processes not released.

    An outage of the database is no failure of the agent, which waits for it. Failing workers do not count: their code
    is the user's, a restart would not repair it, and would interrupt the others.
    """
    if agent is None or agent.slot.failures < AGENT_LOST_AFTER:
        return True
    ready_at = agent.slot.ready_at
    return ready_at is not None and now - ready_at >= agent.slot.kind.stable_after


class SystemdNotifier:
    """Sends notifications to systemd's socket, if there is one, and within each `watchdog` seconds, if given."""

    def __init__(self, address: str | None, watchdog: float | None = None) -> None:
        self._address = "\0" + address[1:] if address and address.startswith("@") else address
        self._watchdog = watchdog
        self._last_sent: NodeCondition | None = None
        self._extend_at = 0.0
        self._watchdog_at = 0.0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str], pid: int) -> SystemdNotifier:
        """Read and remove the variables that systemd has set, which the node's children must not use.

        A watchdog for another process than `pid` is ignored.
        """
        address = environment.pop("NOTIFY_SOCKET", "")
        period = environment.pop("WATCHDOG_USEC", "")
        watchdog_pid = environment.pop("WATCHDOG_PID", "") or str(pid)
        has_watchdog = period.isdecimal() and int(period) > 0 and watchdog_pid == str(pid)
        return cls(address if address.startswith(("/", "@")) else None, int(period) / 1e6 if has_watchdog else None)

    @property
    def due_at(self) -> float | None:
        """When a notification is due even if nothing has changed."""
        if self._address is None or self._last_sent is None:
            return None
        watchdog = [self._watchdog_at] if self._watchdog else []
        extension = [self._extend_at] if self._last_sent.is_busy else []
        return min([*watchdog, *extension], default=None)

    def notify(self, condition: NodeCondition, now: float) -> None:
        """Send what has changed in the node's condition, and what is due; `now` is CLOCK_MONOTONIC."""
        if self._address is None:
            return
        changes, due = self._changes(condition, now), self._due(condition, now)
        sent = True
        if changes or due:
            try:
                self._socket.sendto("\n".join([*changes, *due]).encode(errors="replace"), self._address)
            except OSError:
                sent = False
        if sent:
            self._last_sent = condition
        if any(line.startswith("EXTEND") for line in due):
            self._extend_at = now + (EXTEND_INTERVAL if sent else RETRY_DELAY)
        if now >= self._watchdog_at:
            self._watchdog_at = now + ((self._watchdog or 0.0) / 2 if sent and condition.healthy else RETRY_DELAY)

    def close(self) -> None:
        self._socket.close()

    def _changes(self, condition: NodeCondition, now: float) -> list[str]:
        last = self._last_sent or NodeCondition("", "")
        lines = []
        has_reloaded = last.reloading and not condition.reloading
        if condition.phase == "running" and (last.phase != "running" or has_reloaded):
            lines.append("READY=1")
        if condition.reloading and not last.reloading:
            lines += ["RELOADING=1", f"MONOTONIC_USEC={int(now * 1e6)}"]
        if condition.phase == "stopping" and last.phase != "stopping":
            lines.append("STOPPING=1")
        if condition.text != last.text:
            lines.append(f"STATUS={' '.join(condition.text.split())}")
        return lines

    def _due(self, condition: NodeCondition, now: float) -> list[str]:
        lines = []
        last = self._last_sent
        is_new = last is None or (last.phase, last.reloading) != (condition.phase, condition.reloading)
        if condition.is_busy and (is_new or now >= self._extend_at):  # each has a timeout of its own
            lines.append(f"EXTEND_TIMEOUT_USEC={int(EXTEND_BY * 1e6)}")
        if self._watchdog and condition.healthy and now >= self._watchdog_at:
            lines.append("WATCHDOG=1")
        return lines
