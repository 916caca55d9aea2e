"""The part of the agent that measures the node's processes, and asks the master to replace one that uses too much."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import psutil

from peerd.agent.components import ComponentSupervisor
from peerd.agent.resource_limits import LimitMonitor, ResourceUsage, UsageLimits
from peerd.runtime.process.link import Link

RequestLimits = Callable[[int], Awaitable[Any]]
ROLES_WITH_LIMITS: Final = ("worker", "web")
"""Roles of processes that can be asked for their limits."""
SAMPLE_EVERY: Final = 5.0
"""Seconds between two samples."""


class ResourceMonitor:
    """Samples all processes of the node, with what they have started (ffmpeg belongs to its worker).

    Args:
        request_limits: gives a worker's own limits, by its process id; may fail, and is asked again then.
        limits_by_kind: limits of kinds that cannot be asked: other programs.
        every: seconds between two samples.
    """

    def __init__(
        self,
        request_limits: RequestLimits,
        limits_by_kind: Mapping[str, UsageLimits] | None = None,
        every: float = SAMPLE_EVERY,
    ) -> None:
        self._request_limits = request_limits
        self._limits_by_kind = limits_by_kind or {}
        self._every = every
        self._meter = UsageMeter()
        self._limit_monitor = LimitMonitor()
        self._roles: dict[int, str] = {}
        self._limits: dict[int, UsageLimits] = {}

    async def start(self, link: Link, components: ComponentSupervisor) -> None:
        """Begin."""
        self._link = link
        self._components = components
        components.start("samples", self._sample_periodically)

    def receive(self, message: Mapping[str, Any]) -> None:
        """Hear which processes there are."""
        if message.get("type") == "processes":
            self._roles = {int(one["pid"]): str(one["role"]) for one in message["processes"]}
            limits_by_kind = {
                int(one["pid"]): self._limits_by_kind.get(str(one["kind"])) for one in message["processes"]
            }
            self._limits |= {pid: limits for pid, limits in limits_by_kind.items() if limits is not None}

    async def stop(self, grace: float) -> None:
        """End."""
        await self._components.stop(["samples"], within=1.0)

    async def _sample_periodically(self) -> None:
        while True:
            await self._sample()
            await asyncio.sleep(self._every)

    async def _sample(self) -> None:
        roles = dict(self._roles)
        samples = await asyncio.to_thread(self._meter.read, roles, time.monotonic())
        if samples:
            usage_by_pid = {str(pid): {"memory": one.memory, "cpu": round(one.cpu, 3)} for pid, one in samples.items()}
            self._link.send({"type": "samples", "processes": usage_by_pid})
        await self._fetch_limits(roles)
        for exceeded in self._limit_monitor.check(self._limits, samples):
            self._link.send({"type": "replace", "pid": exceeded.pid, "how": exceeded.how, "reason": exceeded.reason})

    async def _fetch_limits(self, roles: Mapping[int, str]) -> None:
        """A worker's code may set limits too, so each worker is asked for its own, once."""
        self._limits = {pid: limits for pid, limits in self._limits.items() if pid in roles}
        unknown = [pid for pid, role in roles.items() if role in ROLES_WITH_LIMITS and pid not in self._limits]
        answers = await asyncio.gather(*map(self._request_limits, unknown), return_exceptions=True)
        for pid, answer in zip(unknown, answers, strict=True):
            if isinstance(answer, dict):
                self._limits[pid] = UsageLimits(answer.get("memory"), answer.get("cpu"))


@dataclass(slots=True)
class UsageMeter:
    """Reads what processes use. Processor time is what was used since the reading before."""

    _previous: dict[int, tuple[float, float]] = field(default_factory=dict)
    """By process id: when, and the seconds of processor time that its tree had used."""

    def read(self, pids: Iterable[int], now: float) -> dict[int, ResourceUsage]:
        """A sample of each process that is there; of a new one, with no processor time yet.

        Args:
            pids: of the processes.
            now: a monotonic time, in seconds.
        """
        samples, current = {}, {}
        for pid in pids:
            with suppress(psutil.Error, OSError):
                memory, used = _tree_usage(psutil.Process(pid))
                previous_at, previous = self._previous.get(pid, (now, used))
                current[pid] = (now, used)
                samples[pid] = ResourceUsage(memory, max(0.0, used - previous) / max(now - previous_at, 0.001))
        self._previous = current
        return samples


def _tree_usage(process: psutil.Process) -> tuple[int, float]:
    """Bytes of memory, and seconds of processor time, of a process and all that descend from it."""
    memory, used = _process_usage(process)
    for child in process.children(recursive=True):
        with suppress(psutil.Error, OSError):
            more_memory, more_used = _process_usage(child)
            memory, used = memory + more_memory, used + more_used
    return memory, used


def _process_usage(process: psutil.Process) -> tuple[int, float]:
    """Of one process: its share of what it shares, not all of it; and its time, with that of children it has reaped."""
    times = process.cpu_times()
    used = times.user + times.system + times.children_user + times.children_system
    info = process.memory_full_info()
    return int(getattr(info, "pss", info.uss)), used
