"""Which processes use too much: several samples in a row above a limit, for a moment's peak is not growth. Pure."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Final

from peerd.domain.size import format_size

CONSECUTIVE_SAMPLES: Final = 3
"""Samples."""


@dataclass(frozen=True, slots=True)
class ResourceUsage:
    """What a process and those below it use: bytes of memory, and processors (1.0 is one of them, all the time)."""

    memory: int
    cpu: float


@dataclass(frozen=True, slots=True)
class UsageLimits:
    """Of a process; None is no limit."""

    memory: int | None = None
    cpu: float | None = None


@dataclass(frozen=True, slots=True)
class ExceededLimit:
    """A process that is to be replaced: how it is called by the master, and why, for people."""

    pid: int
    how: str
    reason: str


@dataclass(slots=True)
class LimitMonitor:
    """Counts, for each process, the samples in a row that were above its limit.

    >>> watch, limits = LimitMonitor(), {17: UsageLimits(memory=1000)}
    >>> [watch.check(limits, {17: ResourceUsage(memory, 0.0)}) for memory in (2000, 900, 2000, 2000)]
    [[], [], [], []]
    >>> watch.check(limits, {17: ResourceUsage(2000, 0.0)})
    [ExceededLimit(pid=17, how='memory-limit', reason='it uses 2 kB of memory (recycle_memory = 1 kB)')]
    """

    _memory_counts: dict[int, int] = field(default_factory=dict)
    _cpu_counts: dict[int, int] = field(default_factory=dict)

    def check(self, limits: Mapping[int, UsageLimits], samples: Mapping[int, ResourceUsage]) -> list[ExceededLimit]:
        """Take the next samples.

        Args:
            limits: of the processes that are ready, by process id.
            samples: of those that could be looked at.

        Returns:
            those that are to be replaced; each is named again as long as it is there.
        """
        exceeded = []
        for pid, limit in limits.items():
            sample = samples.get(pid)
            if sample is None:
                continue
            too_large = limit.memory is not None and sample.memory > limit.memory
            too_busy = limit.cpu is not None and sample.cpu > limit.cpu
            self._memory_counts[pid] = self._memory_counts.get(pid, 0) + 1 if too_large else 0
            self._cpu_counts[pid] = self._cpu_counts.get(pid, 0) + 1 if too_busy else 0
            if self._memory_counts[pid] >= CONSECUTIVE_SAMPLES:
                exceeded.append(ExceededLimit(pid, "memory-limit", _memory_reason(sample.memory, limit.memory or 0)))
            elif self._cpu_counts[pid] >= CONSECUTIVE_SAMPLES:
                exceeded.append(ExceededLimit(pid, "cpu-limit", _cpu_reason(sample.cpu, limit.cpu or 0.0)))
        self._keep_only(limits)
        return exceeded

    def _keep_only(self, pids: Container[int]) -> None:
        self._memory_counts = {pid: count for pid, count in self._memory_counts.items() if pid in pids}
        self._cpu_counts = {pid: count for pid, count in self._cpu_counts.items() if pid in pids}


def _memory_reason(used: int, limit: int) -> str:
    return f"it uses {format_size(used)} of memory (recycle_memory = {format_size(limit)})"


def _cpu_reason(used: float, limit: float) -> str:
    return f"it uses {used:.2f} processors (recycle_cpu = {limit:g})"
