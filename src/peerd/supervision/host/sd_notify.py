"""What the master tells the service manager that has started it: systemd's notification protocol, sd_notify(3).

It is one datagram of `NAME=value` lines on a socket whose address stands in the environment. Where there is none,
nobody is told anything. What a condition is worth telling is decided here, by comparing it with what was told before.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from typing import Final

EXTEND_INTERVAL: Final = 10.0
EXTEND_BY: Final = 30.0
"""Seconds: a start, stop or reload that goes on is given so much more, so often; so one that hangs is still noticed."""

RETRY_DELAY: Final = 1.0
"""Seconds after which is tried again what was not taken, or would not have been true."""


@dataclass(frozen=True, slots=True)
class NodeCondition:
    """How the node is: its phase (`starting`, `running`, `stopping`), a line for people, and what systemd acts on."""

    phase: str
    text: str
    reloading: bool = False
    healthy: bool = True
    """Whether a restart would not do it good: only then is the watchdog kept quiet."""


class SystemdNotifier:
    """The way to the service manager.

    Args:
        address: of its socket; one that begins with @ is in the abstract namespace. None: there is no such manager.
        watchdog: seconds within which it wants to hear of us; None: it does not.
    """

    def __init__(self, address: str | None, watchdog: float | None = None) -> None:
        self._address = "\0" + address[1:] if address and address.startswith("@") else address
        self._watchdog = watchdog
        self._last_sent: NodeCondition | None = None
        self._extend_at = 0.0
        self._watchdog_at = 0.0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str], pid: int) -> SystemdNotifier:
        """Read where it is, and take that out of the environment: what the node starts has nothing to tell it.

        Args:
            environment: of this process, as systemd has made it.
            pid: of this process; a watchdog may be meant for another.
        """
        address = environment.pop("NOTIFY_SOCKET", "")
        period = environment.pop("WATCHDOG_USEC", "")
        watchdog_pid = environment.pop("WATCHDOG_PID", "") or str(pid)
        has_watchdog = period.isdecimal() and int(period) > 0 and watchdog_pid == str(pid)
        return cls(address if address.startswith(("/", "@")) else None, int(period) / 1e6 if has_watchdog else None)

    @property
    def due_at(self) -> float | None:
        """When it wants to be told something even if nothing has changed; None if it does not."""
        if self._address is None or self._last_sent is None:
            return None
        times = [
            *([self._watchdog_at] if self._watchdog else []),
            *([self._extend_at] if self._is_busy(self._last_sent) else []),
        ]
        return min(times, default=None)

    def notify(self, condition: NodeCondition, now: float) -> None:
        """Tell what is new about a condition, and what is due.

        Args:
            condition: how the node is.
            now: the time, seconds of the monotonic clock.
        """
        if self._address is None:
            return
        changes, due = self._changes(condition, now), self._due(condition, now)
        sent = self._send([*changes, *due]) if changes or due else True
        if sent:
            self._last_sent = condition
        if any(line.startswith("EXTEND") for line in due):
            self._extend_at = now + (EXTEND_INTERVAL if sent else RETRY_DELAY)
        if now >= self._watchdog_at:
            self._watchdog_at = now + ((self._watchdog or 0.0) / 2 if sent and condition.healthy else RETRY_DELAY)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    # ---------------------------------------------------------------- what to tell

    def _changes(self, condition: NodeCondition, now: float) -> list[str]:
        last_sent = self._last_sent or NodeCondition("", "")
        lines = []
        if condition.phase == "running" and (
            last_sent.phase != "running" or (last_sent.reloading and not condition.reloading)
        ):
            lines.append("READY=1")
        if condition.reloading and not last_sent.reloading:
            lines += ["RELOADING=1", f"MONOTONIC_USEC={int(now * 1e6)}"]
        if condition.phase == "stopping" and last_sent.phase != "stopping":
            lines.append("STOPPING=1")
        if condition.text != last_sent.text:
            lines.append(f"STATUS={' '.join(condition.text.split())}")
        return lines

    def _due(self, condition: NodeCondition, now: float) -> list[str]:
        lines = []
        is_new = self._last_sent is None or (self._last_sent.phase, self._last_sent.reloading) != (
            condition.phase,
            condition.reloading,
        )
        if self._is_busy(condition) and (is_new or now >= self._extend_at):  # each has a time of its own
            lines.append(f"EXTEND_TIMEOUT_USEC={int(EXTEND_BY * 1e6)}")
        if self._watchdog and condition.healthy and now >= self._watchdog_at:
            lines.append("WATCHDOG=1")
        return lines

    @staticmethod
    def _is_busy(condition: NodeCondition) -> bool:
        """Whether it does something for which systemd's time may run out."""
        return condition.phase != "running" or condition.reloading

    def _send(self, lines: Sequence[str]) -> bool:
        assert self._address is not None
        with contextlib.suppress(OSError):
            self._socket.sendto("\n".join(lines).encode(errors="replace"), self._address)
            return True
        return False
