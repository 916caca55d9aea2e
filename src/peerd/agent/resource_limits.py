"""Which processes use too much: several samples in a row above a limit, for a moment's peak is not growth. Pure."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Final

from peerd.domain.size import format_size

IN_A_ROW: Final = 3
"""Samples."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What a process and those below it use: bytes of memory, and processors (1.0 is one of them, all the time)."""

    memory: int
    cpu: float


@dataclass(frozen=True, slots=True)
class Limits:
    """Of a process; None is no limit."""

    memory: int | None = None
    cpu: float | None = None


@dataclass(frozen=True, slots=True)
class Excess:
    """A process that is to be replaced: how it is called by the master, and why, for people."""

    pid: int
    how: str
    reason: str


@dataclass(slots=True)
class Watch:
    """Counts, for each process, the samples in a row that were above its limit.

    >>> watch, limits = Watch(), {17: Limits(memory=1000)}
    >>> [watch.look(limits, {17: Sample(memory, 0.0)}) for memory in (2000, 900, 2000, 2000)]
    [[], [], [], []]
    >>> watch.look(limits, {17: Sample(2000, 0.0)})
    [Excess(pid=17, how='memory-limit', reason='it uses 2 kB of memory (recycle_memory = 1 kB)')]
    """

    _large: dict[int, int] = field(default_factory=dict)
    _busy: dict[int, int] = field(default_factory=dict)

    def look(self, limits: Mapping[int, Limits], samples: Mapping[int, Sample]) -> list[Excess]:
        """Take the next samples.

        Args:
            limits: of the processes that are ready, by process id.
            samples: of those that could be looked at.

        Returns:
            those that are to be replaced; each is named again as long as it is there.
        """
        found = []
        for pid, limit in limits.items():
            sample = samples.get(pid)
            if sample is None:
                continue
            too_large = limit.memory is not None and sample.memory > limit.memory
            too_busy = limit.cpu is not None and sample.cpu > limit.cpu
            self._large[pid] = self._large.get(pid, 0) + 1 if too_large else 0
            self._busy[pid] = self._busy.get(pid, 0) + 1 if too_busy else 0
            if self._large[pid] >= IN_A_ROW:
                found.append(Excess(pid, "memory-limit", _memory_words(sample.memory, limit.memory or 0)))
            elif self._busy[pid] >= IN_A_ROW:
                found.append(Excess(pid, "cpu-limit", _cpu_words(sample.cpu, limit.cpu or 0.0)))
        self._forget_all_but(limits)
        return found

    def _forget_all_but(self, living: Container[int]) -> None:
        self._large = {pid: count for pid, count in self._large.items() if pid in living}
        self._busy = {pid: count for pid, count in self._busy.items() if pid in living}


def _memory_words(used: int, limit: int) -> str:
    return f"it uses {format_size(used)} of memory (recycle_memory = {format_size(limit)})"


def _cpu_words(used: float, limit: float) -> str:
    return f"it uses {used:.2f} processors (recycle_cpu = {limit:g})"
