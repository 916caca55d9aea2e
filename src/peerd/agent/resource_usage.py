"""The part of the agent that measures the node's processes, and asks the master to replace one that uses too much."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import psutil

from peerd.agent.components import Components
from peerd.agent.resource_limits import Limits, Sample, Watch
from peerd.runtime.process.link import Link

AskLimits = Callable[[int], Awaitable[Any]]
WORKERS: Final = ("worker", "web")
"""Roles of processes that can be asked for their limits."""
EVERY: Final = 5.0
"""Seconds between two samples."""


class Samples:
    """Samples all processes of the node, with what they have started (ffmpeg belongs to its worker).

    Args:
        ask: gives a worker's own limits, by its process id; may fail, and is asked again then.
        of_kinds: limits of kinds that cannot be asked: other programs.
        every: seconds between two samples.
    """

    def __init__(self, ask: AskLimits, of_kinds: Mapping[str, Limits] | None = None, every: float = EVERY) -> None:
        self._ask = ask
        self._of_kinds = of_kinds or {}
        self._every = every
        self._meter = Meter()
        self._watch = Watch()
        self._roles: dict[int, str] = {}
        self._limits: dict[int, Limits] = {}

    async def start(self, link: Link, components: Components) -> None:
        """Begin."""
        self._link = link
        self._components = components
        components.start("samples", self._sample_again_and_again)

    def receive(self, message: Mapping[str, Any]) -> None:
        """Hear which processes there are."""
        if message.get("type") == "processes":
            self._roles = {int(one["pid"]): str(one["role"]) for one in message["processes"]}
            of_kinds = {int(one["pid"]): self._of_kinds.get(str(one["kind"])) for one in message["processes"]}
            self._limits |= {pid: limits for pid, limits in of_kinds.items() if limits is not None}

    async def stop(self, grace: float) -> None:
        """End."""
        await self._components.stop(["samples"], within=1.0)

    async def _sample_again_and_again(self) -> None:
        while True:
            await self._sample()
            await asyncio.sleep(self._every)

    async def _sample(self) -> None:
        roles = dict(self._roles)
        samples = await asyncio.to_thread(self._meter.read, roles, time.monotonic())
        if samples:
            told = {str(pid): {"memory": one.memory, "cpu": round(one.cpu, 3)} for pid, one in samples.items()}
            self._link.send({"type": "samples", "processes": told})
        await self._learn_limits(roles)
        for excess in self._watch.look(self._limits, samples):
            self._link.send({"type": "replace", "pid": excess.pid, "how": excess.how, "reason": excess.reason})

    async def _learn_limits(self, roles: Mapping[int, str]) -> None:
        """A worker's code may set limits too, so each worker is asked for its own, once."""
        self._limits = {pid: limits for pid, limits in self._limits.items() if pid in roles}
        unknown = [pid for pid, role in roles.items() if role in WORKERS and pid not in self._limits]
        answers = await asyncio.gather(*map(self._ask, unknown), return_exceptions=True)
        for pid, answer in zip(unknown, answers, strict=True):
            if isinstance(answer, dict):
                self._limits[pid] = Limits(answer.get("memory"), answer.get("cpu"))


@dataclass(slots=True)
class Meter:
    """Reads what processes use. Processor time is what was used since the reading before."""

    _before: dict[int, tuple[float, float]] = field(default_factory=dict)
    """By process id: when, and the seconds of processor time that its tree had used."""

    def read(self, pids: Iterable[int], now: float) -> dict[int, Sample]:
        """A sample of each process that is there; of a new one, with no processor time yet.

        Args:
            pids: of the processes.
            now: a monotonic time, in seconds.
        """
        samples, seen = {}, {}
        for pid in pids:
            with suppress(psutil.Error, OSError):
                memory, used = _use_of(psutil.Process(pid))
                began, before = self._before.get(pid, (now, used))
                seen[pid] = (now, used)
                samples[pid] = Sample(memory, max(0.0, used - before) / max(now - began, 0.001))
        self._before = seen
        return samples


def _use_of(process: psutil.Process) -> tuple[int, float]:
    """Bytes of memory, and seconds of processor time, of a process and all that descend from it."""
    memory, used = _own_use_of(process)
    for child in process.children(recursive=True):
        with suppress(psutil.Error, OSError):
            more_memory, more_used = _own_use_of(child)
            memory, used = memory + more_memory, used + more_used
    return memory, used


def _own_use_of(process: psutil.Process) -> tuple[int, float]:
    """Of one process: its share of what it shares, not all of it; and its time, with that of children it has reaped."""
    times = process.cpu_times()
    used = times.user + times.system + times.children_user + times.children_system
    info = process.memory_full_info()
    return int(getattr(info, "pss", info.uss)), used
