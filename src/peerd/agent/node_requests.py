"""Takes the requests to this node from the table, and carries them out.

A ring or a check of the stager wakes it; either costs one look at the table and nothing else, so a forged ring can do
no harm. A request is taken by a compare-and-set and carried out at most once. Of a former agent of the same incarnation
those requests are continued that wait for the end of a reload or of scaling; all others are failed.

A request is carried out by the control socket as the command line does it, or by a message to a process. The agent is a
client of the control socket like any other: so the master checks commands in one place, and loads nothing more for
those that come from another node.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, assert_never

import msgspec
import psutil

from peerd.agent.components import ComponentSupervisor, Subsystem
from peerd.domain import node_request as commands
from peerd.domain.errors import DatabaseUnavailable, PeerdError, RequestFailed
from peerd.domain.node_request import NodeCommand
from peerd.domain.pacing import Backoff, TokenBucket
from peerd.domain.task_stack import ProcessUsage, StackAnswer, TaskStack
from peerd.runtime.messenger import Messenger
from peerd.runtime.observability.log_messages import node_request_ended
from peerd.runtime.process.link import Link
from peerd.runtime.process.process_context import STACK_ACTION
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.shell import ProcessShell
from peerd.store import node_requests as stored
from peerd.store.connection.database import DatabaseThreads
from peerd.store.node_requests import NodeRequest

COMPONENT: Final = "node requests"
FRUITLESS_LOOKS: Final = (20, 5.0)
"""Looks that may find nothing, at once and in a second: a ring need not be true."""
MAX_RUNNING: Final = 8
"""Requests that are carried out at the same time; the others wait in the table."""


@dataclass(eq=False)
class NodeRequestReceiver(Subsystem):
    """The requests to a node, in its agent."""

    incarnation: str
    send_command: SendCommand

    def __post_init__(self) -> None:
        self._wake_event = asyncio.Event()
        self._running: dict[int, asyncio.Task[None]] = {}
        self._fruitless_looks = TokenBucket(*FRUITLESS_LOOKS)
        self._components: ComponentSupervisor | None = None

    async def start(self, shell: ProcessShell, components: ComponentSupervisor) -> None:
        """Start looking for requests."""
        self._threads = DatabaseThreads(shell.database, threads=1)
        self._events = shell.events
        self._executor = RequestExecutor(shell.link, shell.process.messenger, self.send_command)
        self._components = components
        components.start(COMPONENT, self._run)

    async def stop(self, grace: float) -> None:
        """Stop. What waits for the end of a reload stays running: the next agent continues it."""
        if self._components is not None:
            await self._components.stop([COMPONENT], within=1.0)
        for task in list(self._running.values()):
            task.cancel()
        if self._running:
            await asyncio.wait(self._running.values(), timeout=1.0)

    def wake(self) -> None:
        """A request waits, or may; on the agent's event loop."""
        self._wake_event.set()

    async def _run(self) -> None:
        pauses = Backoff(first=0.5)
        may_be_interrupted = True  # by the end of an agent before this one, or by a lost reply
        while True:
            self._wake_event.clear()
            try:
                if may_be_interrupted:
                    await self._continue_interrupted()
                    may_be_interrupted = False
                await self._look()
                pauses.reset()
            except DatabaseUnavailable:  # the heartbeat reports it
                may_be_interrupted = True
                await asyncio.sleep(pauses.next())
                continue
            await self._wake_event.wait()
            await asyncio.sleep(self._fruitless_looks.take(time.monotonic()))

    async def _continue_interrupted(self) -> None:
        """Continue or fail what was taken and is not being carried out."""
        running = await self._threads.read(stored.list_running_requests, self.incarnation)
        unknown = [request for request in running if request.id not in self._running]
        await self._threads.run(stored.fail_interrupted, [request.id for request in unknown if request.result is None])
        for request in unknown:
            if request.result is not None:
                self._begin(request)

    async def _look(self) -> None:
        if len(self._running) >= MAX_RUNNING:
            return  # the end of one looks again
        taken = await self._threads.run(stored.take_requests, self.incarnation, MAX_RUNNING - len(self._running))
        if taken:
            self._fruitless_looks.fill()
        for request in taken:
            self._begin(request)

    def _begin(self, request: NodeRequest) -> None:
        task = asyncio.get_running_loop().create_task(self._carry_out(request), name=f"request-{request.id}")
        self._running[request.id] = task
        task.add_done_callback(lambda _: self._on_ended(request.id))

    def _on_ended(self, request_id: int) -> None:
        del self._running[request_id]
        self.wake()

    async def _carry_out(self, request: NodeRequest) -> None:
        result: str | None = None
        error: str | None = None
        try:
            command = commands.decode_command(request.arguments)
            report = partial(self._write, stored.record_progress, request.id)
            result = await self._executor.execute(command, request.result, report)
            if len(result) > commands.MAX_RESULT_BYTES:
                error = f"its answer has {len(result)} bytes, and {commands.MAX_RESULT_BYTES} are allowed"
        except (NodeRequestRefused, PeerdError, ValueError, OSError) as refused:
            error = str(refused)
        except Exception as failed:  # noqa: BLE001 - the requester learns of it, and the agent goes on
            error = describe_exception(failed)
        await self._write(stored.finish_request, request.id, result=result if error is None else None, error=error)
        self._events.emit(node_request_ended(request.id, request.command, request.requested_by, error))

    async def _write(self, operation: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Write to the row, however long the database is away."""
        pauses = Backoff(first=0.5)
        while True:
            try:
                await self._threads.run(operation, *args, **kwargs)
            except DatabaseUnavailable:
                await asyncio.sleep(pauses.next())
            else:
                return


# ---------------------------------------------------------------- execution


POLL_EVERY: Final = 0.2
"""Seconds between two looks at the state of the master while something is waited for."""
STACK_TIMEOUT: Final = 8.0
"""Seconds that a process has for the answer with a stack."""
CPU_INTERVAL: Final = 0.2
"""Seconds over which the processor time of a process is measured."""

SendCommand = Callable[[Path, Mapping[str, object]], dict[str, Any]]
"""Sends a command to the master of a run directory; gives its answer, or raises `NodeRequestRefused`. In a thread."""
Report = Callable[[str], Awaitable[None]]
"""Writes what continues the request if this agent is replaced."""


class NodeRequestRefused(Exception):
    """The node cannot carry out a request; the text says why."""


@dataclass(eq=False)
class RequestExecutor:
    """Carries out requests."""

    link: Link
    messenger: Messenger
    send_command: SendCommand

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
            case commands.StateArguments():
                return _encode(await self._send({"command": "status"}))
            case commands.ReloadArguments():
                return _encode(await self._reload(command, progress, report))
            case commands.ScaleArguments():
                return _encode(await self._scale(command, progress, report))
            case commands.StackArguments():
                return _encode(await self._read_stack(command))
            case _:
                assert_never(command)

    async def _send(self, command: Mapping[str, object]) -> dict[str, Any]:
        assert self.link.run_directory is not None
        return await asyncio.to_thread(self.send_command, self.link.run_directory, command)

    async def _begin(self, command: Mapping[str, object], progress: str | None, report: Report) -> dict[str, Any]:
        """Send a command to the master and report its answer, unless an earlier agent has; return the answer."""
        if progress is not None:
            return dict(msgspec.json.decode(progress))
        begun = await self._send(command)
        await report(_encode(begun))
        return begun

    async def _reload(
        self, command: commands.ReloadArguments, progress: str | None, report: Report
    ) -> Mapping[str, Any]:
        deadline = time.monotonic() + command.wait
        wanted = {"command": "reload", "kinds": command.kinds, "config_only": command.config_only}
        number = (await self._begin(wanted, progress, report))["number"]
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

    async def _scale(self, command: commands.ScaleArguments, progress: str | None, report: Report) -> Mapping[str, Any]:
        deadline = time.monotonic() + command.wait
        wanted = {"command": "scale", "kind": command.kind, "processes": command.count}
        scaled = await self._begin(wanted, progress, report)
        while True:
            slots = (await self._send({"command": "status"}))["slots"]
            own = [slot for slot in slots if slot["kind"] == command.kind]
            if len(own) == command.count and all(slot["state"] in ("RUNNING", "EXITED") for slot in own):
                return scaled
            if time.monotonic() >= deadline:
                states = ", ".join(f"{slot['name']} {slot['state']}" for slot in own)
                raise NodeRequestRefused(f"not scaled within {command.wait:g} s, and going on: {states}")
            await asyncio.sleep(POLL_EVERY)

    async def _read_stack(self, command: commands.StackArguments) -> TaskStack:
        try:
            data = {"task": command.task_id}
            answer = await self.messenger.request(command.pid, STACK_ACTION, data, timeout=STACK_TIMEOUT)
        except RequestFailed as error:
            raise NodeRequestRefused(error.error) from None
        found = msgspec.convert(answer, StackAnswer)
        return TaskStack(
            task_id=command.task_id,
            node=self.link.node,
            slot=found.slot,
            since=found.since,
            calls=found.calls,
            is_cut=found.is_cut,
            process=await asyncio.to_thread(_measure_process, found.pid),
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
