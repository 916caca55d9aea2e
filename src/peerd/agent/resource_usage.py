"""Measures the node's processes, and has the master replace one that exceeds its limits.

A limit is exceeded by several samples in a row above it: the peak of a moment is not growth.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import psutil

from peerd.agent.components import ComponentSupervisor, Subsystem
from peerd.domain.units import format_size
from peerd.runtime.process.process_context import LIMITS_ACTION
from peerd.shell import ProcessShell

ROLES_WITH_LIMITS: Final = ("worker", "web", "gateway")
"""Roles of processes that can be asked for their limits."""
LIMITS_REQUEST_TIMEOUT: Final = 2.0
"""Seconds that a worker has to answer with its limits; the request is repeated."""
SAMPLE_EVERY: Final = 5.0  # seconds
CONSECUTIVE_SAMPLES: Final = 3
"""Samples in a row above a limit that exceed it."""


class ResourceUsage(NamedTuple):
    """What a process and its descendants use: bytes of memory, and processors (1.0 is one processor all the time)."""

    memory: int
    cpu: float


class UsageLimits(NamedTuple):
    """The limits of a process; None is no limit."""

    memory: int | None = None
    cpu: float | None = None


class ExceededLimit(NamedTuple):
    """A process to be replaced, the master's word for the cause, and the cause in words."""

    pid: int
    how: str
    reason: str


@dataclass(eq=False)
class ResourceMonitor(Subsystem):
    """Samples all processes of the node with their descendants, such as the ffmpeg of a worker.

    Args:
        limits_by_kind: limits of other programs, which cannot be asked.
        every: seconds between two samples.
    """

    limits_by_kind: Mapping[str, UsageLimits] = field(default_factory=dict)
    every: float = SAMPLE_EVERY

    def __post_init__(self) -> None:
        self._meter = UsageMeter()
        self._limit_monitor = LimitMonitor()
        self._roles: dict[int, str] = {}
        self._limits: dict[int, UsageLimits] = {}

    async def start(self, shell: ProcessShell, components: ComponentSupervisor) -> None:
        self._link, self._messenger = shell.link, shell.process.messenger
        self._components = components
        components.start("resource usage", self._sample_periodically)

    def receive(self, message: Mapping[str, Any]) -> None:
        if message.get("type") == "processes":
            self._roles = {int(process["pid"]): str(process["role"]) for process in message["processes"]}
            for process in message["processes"]:
                if (limits := self.limits_by_kind.get(str(process["kind"]))) is not None:
                    self._limits[int(process["pid"])] = limits

    async def stop(self, grace: float) -> None:
        await self._components.stop(["resource usage"], within=1.0)

    async def _sample_periodically(self) -> None:
        while True:
            await self._sample()
            await asyncio.sleep(self.every)

    async def _sample(self) -> None:
        roles = dict(self._roles)
        samples = await asyncio.to_thread(self._meter.read, roles, time.monotonic())
        if samples:
            usage = {
                str(pid): {"memory": sample.memory, "cpu": round(sample.cpu, 3)} for pid, sample in samples.items()
            }
            self._link.send({"type": "samples", "processes": usage})
        await self._fetch_limits(roles)
        for exceeded in self._limit_monitor.check(self._limits, samples):
            self._link.send({"type": "replace", **exceeded._asdict()})

    async def _fetch_limits(self, roles: Mapping[int, str]) -> None:
        """Ask each worker once for its limits, which its code may set too."""
        self._limits = {pid: limits for pid, limits in self._limits.items() if pid in roles}
        unknown = [pid for pid, role in roles.items() if role in ROLES_WITH_LIMITS and pid not in self._limits]
        requests = [self._messenger.request(pid, LIMITS_ACTION, timeout=LIMITS_REQUEST_TIMEOUT) for pid in unknown]
        answers = await asyncio.gather(*requests, return_exceptions=True)
        for pid, answer in zip(unknown, answers, strict=True):
            if isinstance(answer, dict):
                self._limits[pid] = UsageLimits(answer.get("memory"), answer.get("cpu"))


@dataclass(slots=True)
class LimitMonitor:
    """Counts, for each process, the samples in a row that were above its limit.

    >>> monitor, limits = LimitMonitor(), {17: UsageLimits(memory=1000)}
    >>> [monitor.check(limits, {17: ResourceUsage(memory, 0.0)}) for memory in (2000, 900, 2000, 2000)]
    [[], [], [], []]
    >>> monitor.check(limits, {17: ResourceUsage(2000, 0.0)})
    [ExceededLimit(pid=17, how='memory-limit', reason='it uses 2 kB of memory (recycle_memory = 1 kB)')]
    """

    _counts: dict[tuple[int, str], int] = field(default_factory=dict)

    def check(self, limits: Mapping[int, UsageLimits], samples: Mapping[int, ResourceUsage]) -> list[ExceededLimit]:
        """Take the next samples, by process id; return the processes to be replaced, again as long as they exist."""
        self._counts = {key: count for key, count in self._counts.items() if key[0] in limits}
        exceeded = []
        for pid, limit in limits.items():
            if (sample := samples.get(pid)) is None:
                continue
            is_too_large = self._is_exceeded(pid, "memory", sample.memory, limit.memory)
            is_too_busy = self._is_exceeded(pid, "cpu", sample.cpu, limit.cpu)
            if is_too_large:
                used, allowed = format_size(sample.memory), format_size(limit.memory or 0)
                reason = f"it uses {used} of memory (recycle_memory = {allowed})"
                exceeded.append(ExceededLimit(pid, "memory-limit", reason))
            elif is_too_busy:
                reason = f"it uses {sample.cpu:.2f} processors (recycle_cpu = {limit.cpu or 0.0:g})"
                exceeded.append(ExceededLimit(pid, "cpu-limit", reason))
        return exceeded

    def _is_exceeded(self, pid: int, resource: str, used: float, limit: float | None) -> bool:
        is_above = limit is not None and used > limit
        self._counts[pid, resource] = count = self._counts.get((pid, resource), 0) + 1 if is_above else 0
        return count >= CONSECUTIVE_SAMPLES


@dataclass(slots=True)
class UsageMeter:
    """Measures processes. Processor time is that since the measurement before."""

    # by process id: the time of the measurement, and the seconds of processor time that the tree had used
    _previous: dict[int, tuple[float, float]] = field(default_factory=dict)

    def read(self, pids: Iterable[int], now: float) -> dict[int, ResourceUsage]:
        """A sample of each process that exists, by a monotonic clock; the first one has no processor time."""
        samples, current = {}, {}
        for pid in pids:
            with suppress(psutil.Error, OSError):
                memory, used = _measure_tree(psutil.Process(pid))
                previous_at, previous = self._previous.get(pid, (now, used))
                current[pid] = (now, used)
                samples[pid] = ResourceUsage(memory, max(0.0, used - previous) / max(now - previous_at, 0.001))
        self._previous = current
        return samples


def _measure_tree(process: psutil.Process) -> tuple[int, float]:
    """Bytes of memory and seconds of processor time of a process and its descendants."""
    memory, used = _measure(process)
    for child in process.children(recursive=True):
        with suppress(psutil.Error, OSError):
            more_memory, more_used = _measure(child)
            memory, used = memory + more_memory, used + more_used
    return memory, used


def _measure(process: psutil.Process) -> tuple[int, float]:
    """The memory and the time of a process: shared memory counts in part (PSS), reaped children count in the time."""
    times = process.cpu_times()
    used = times.user + times.system + times.children_user + times.children_system
    info = process.memory_full_info()
    return int(getattr(info, "pss", info.uss)), used
