"""Carries out a request to this node, by the control socket as the command line does, or by a message to a process.

The agent is a client of the control socket like any other: so the master checks commands in one place, and loads
nothing more for those that come from another node.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, assert_never

import msgspec
import psutil

from peerd.domain.node_request import NodeCommand, ReloadArguments, ScaleArguments, StackArguments, StateArguments
from peerd.domain.task_stack import ProcessUsage, StackAnswer, TaskStack

POLL_EVERY: Final = 0.2
"""Seconds between two looks at the state of the master while something is waited for."""
STACK_TIMEOUT: Final = 8.0
"""Seconds that a process has for the answer with a stack."""
CPU_INTERVAL: Final = 0.2
"""Seconds over which the processor time of a process is measured."""

SendCommand = Callable[[Mapping[str, object]], dict[str, Any]]
"""Sends a command to the master and waits for its answer; called in a thread."""
RequestStack = Callable[[int, Mapping[str, object], float], Awaitable[Any]]
"""Requests the stack of a task from a process of this node, within so many seconds."""
Report = Callable[[str], Awaitable[None]]
"""Writes what continues the request if this agent is replaced."""


class NodeRequestRefused(Exception):
    """The node cannot carry out a request; the text says why."""


class _ReloadProgress(msgspec.Struct, frozen=True):
    number: int


class _ScaleProgress(msgspec.Struct, frozen=True):
    kind: str
    before: int
    processes: int


@dataclass(eq=False)
class RequestExecutor:
    """Carries out requests."""

    node: str
    send_command: SendCommand
    request_stack: RequestStack

    async def execute(self, command: NodeCommand, progress: str | None, report: Report) -> str:
        """Carry out a command; return its result as JSON.

        Args:
            command: with its checked arguments.
            progress: what an earlier agent has reported of this request; None: it is new.
            report: writes such a text.

        Raises:
            NodeRequestRefused: the master, or the process, refuses it.
            OSError: the master does not answer.
        """
        match command:
            case StateArguments():
                return _encode(await self._send({"command": "status"}))
            case ReloadArguments():
                return _encode(await self._reload(command, progress, report))
            case ScaleArguments():
                return _encode(await self._scale(command, progress, report))
            case StackArguments():
                return _encode(await self._read_stack(command))
            case _:
                assert_never(command)

    async def _send(self, command: Mapping[str, object]) -> dict[str, Any]:
        return await asyncio.to_thread(self.send_command, command)

    async def _reload(self, command: ReloadArguments, progress: str | None, report: Report) -> Mapping[str, Any]:
        deadline = time.monotonic() + command.wait
        if progress is None:
            kinds = None if command.kinds is None else list(command.kinds)
            begun = await self._send({"command": "reload", "kinds": kinds, "config_only": command.config_only})
            number = int(begun["number"])
            await report(_encode(_ReloadProgress(number)))
        else:
            number = msgspec.json.decode(progress, type=_ReloadProgress).number
        while True:
            reloads = (await self._send({"command": "status"}))["reloads"]
            found: Mapping[str, Any] | None = next((one for one in reloads if one["number"] == number), None)
            if found is None:
                raise NodeRequestRefused("the end of this reload is no longer known: many others came after it")
            if found["progress"] == "abandoned":
                raise NodeRequestRefused(f"the reload was abandoned, the old processes go on: {found['error']}")
            if found["progress"] == "done":
                return found
            if time.monotonic() >= deadline:
                raise NodeRequestRefused(f"the reload has not ended within {command.wait:g} s, and goes on")
            await asyncio.sleep(POLL_EVERY)

    async def _scale(self, command: ScaleArguments, progress: str | None, report: Report) -> Mapping[str, Any]:
        deadline = time.monotonic() + command.wait
        if progress is None:
            scaled = await self._send({"command": "scale", "kind": command.kind, "processes": command.count})
            await report(_encode(_ScaleProgress(command.kind, int(scaled["before"]), command.count)))
        else:
            scaled = msgspec.to_builtins(msgspec.json.decode(progress, type=_ScaleProgress))
        while True:
            slots = (await self._send({"command": "status"}))["slots"]
            own = [slot for slot in slots if slot["kind"] == command.kind]
            if len(own) == command.count and all(slot["state"] in ("RUNNING", "EXITED") for slot in own):
                return scaled
            if time.monotonic() >= deadline:
                states = ", ".join(f"{slot['name']} {slot['state']}" for slot in own)
                raise NodeRequestRefused(f"not scaled within {command.wait:g} s, and going on: {states}")
            await asyncio.sleep(POLL_EVERY)

    async def _read_stack(self, command: StackArguments) -> TaskStack:
        answer = await self.request_stack(command.pid, {"task": command.task_id}, STACK_TIMEOUT)
        found = msgspec.convert(answer, StackAnswer)
        usage = await asyncio.to_thread(_measure_process, found.pid)
        return TaskStack(
            task_id=command.task_id,
            node=self.node,
            slot=found.slot,
            since=found.since,
            calls=found.calls,
            is_cut=found.is_cut,
            process=usage,
        )


def _measure_process(pid: int) -> ProcessUsage | None:
    """The usage of a process; None when it has ended."""
    try:
        process = psutil.Process(pid)
        cpu = process.cpu_percent(interval=CPU_INTERVAL)
        with process.oneshot():
            return ProcessUsage(
                pid=pid,
                cpu=round(cpu / 100.0, 3),
                memory=process.memory_info().rss,
                threads=process.num_threads(),
            )
    except (psutil.Error, OSError):
        return None


def _encode(value: object) -> str:
    return msgspec.json.encode(value).decode()
