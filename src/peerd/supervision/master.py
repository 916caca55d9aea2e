"""The master: the one process that one starts, and that must never fall.

It keeps each slot filled, tells the agent of each death, and stops the node in order. It runs no user code, opens no
database, and loads nothing but the standard library and its own few modules. One thread, one loop; every decision
about a slot is made by `peerd.supervision.slot`, and this file is the shell round it.

    python -P -m peerd.supervision.master FD        the plan, JSON, is read from this descriptor
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

from peerd.runtime import exits
from peerd.runtime.frames import FrameError
from peerd.runtime.parent import adopt_orphans
from peerd.supervision import orphans
from peerd.supervision.cause import Cause
from peerd.supervision.console import Console
from peerd.supervision.control_server import ControlServer
from peerd.supervision.deaths import Deaths
from peerd.supervision.lock import AlreadyRunning, NodeLock
from peerd.supervision.loop import Loop
from peerd.supervision.plan import Plan, PlanError
from peerd.supervision.process import Process
from peerd.supervision.roster import Member, Roster
from peerd.supervision.slot import Event, State

ACKNOWLEDGE_WITHIN: Final = 10.0
"""Seconds that a stopping master waits for the agent to deal with the last deaths; 1 when somebody hurries."""


class Phase(StrEnum):
    """How the node is."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"


class Master:
    """A node's supervisor."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._console = Console(plan.node)
        self._loop = Loop(self._console.fault)
        self._roster = Roster(plan)
        self._deaths = Deaths()
        self._phase = Phase.STARTING
        self._fast = False
        self._failed = False
        self._finished = False
        self._signals = 0
        self._acknowledge_by: float | None = None
        self._started_at = datetime.now(UTC)
        self._said: dict[str, Callable[[Member, Process, Mapping[str, Any]], None]] = {
            "ready": self._on_ready,
            "boot-failed": self._on_error,
            "crashed": self._on_error,
            "tainted": self._on_retire,
            "recycle": self._on_retire,
            "alert": self._on_alert,
            "death-acknowledged": self._on_acknowledged,
        }
        self._commands: dict[str, Callable[[Mapping[str, Any]], Mapping[str, object]]] = {
            "status": self._status,
            "stop": self._stop_command,
            "modules": lambda _: {"modules": sorted(sys.modules)},
        }

    def run(self) -> int:
        """Keep the node up until it is stopped; return the master's exit status."""
        adopt_orphans()
        self._loop.watch_signals((signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD), self._on_signals)
        control = ControlServer(Path(self._plan.run_directory), self._loop, self._answer)
        while not self._finished:
            self._loop.guard(self._look)
            self._loop.wait(self._until_next_look())
        self._leave_nothing_behind()
        control.close()
        return exits.BOOT_FAILED if self._failed else exits.OK

    # ---------------------------------------------------------------- the round

    def _look(self) -> None:
        """Do all that is due now. It may be called at any time, and again."""
        now = time.monotonic()
        for process in self._roster.processes():
            process.kill_if_out_of_time(now)
        if self._phase is Phase.STARTING:
            self._go_on_starting(now)
        if self._phase is Phase.STOPPING:
            self._go_on_stopping(now)
        for member in self._roster.members:
            if member.slot.is_due(now) and self._may_start(member):
                self._start(member, now)
        orphans.reap_orphans(self._roster.pids())

    def _until_next_look(self) -> float:
        if self._finished:
            return 0.0
        now = time.monotonic()
        times = [*self._roster.deadlines(), *([self._acknowledge_by] if self._acknowledge_by else [])]
        return min([self._plan.shutdown_interval, *(max(0.0, at - now) for at in times)])

    # ---------------------------------------------------------------- start

    def _go_on_starting(self, now: float) -> None:
        """Agent first, then all others, then tell everybody."""
        agent = self._roster.agent
        if agent and agent.slot.state is State.STOPPED:
            self._start(agent, now)
        if agent and agent.slot.state is not State.RUNNING:
            return
        for member in self._roster.others:
            if member.slot.state is State.STOPPED and self._phase is Phase.STARTING:
                self._start(member, now)
        if all(member.slot.state in (State.RUNNING, State.EXITED) for member in self._roster.others):
            self._become_ready()

    def _become_ready(self) -> None:
        self._phase = Phase.RUNNING
        self._console.say(f"ready: {len(self._roster.pids())} processes")
        for process in self._roster.processes():
            process.link.send({"type": "ready"})

    def _may_start(self, member: Member) -> bool:
        """A node that stops replaces nobody but its agent, who has deaths to deal with."""
        return self._phase is Phase.RUNNING or (member.is_agent and not self._failed)

    def _start(self, member: Member, now: float) -> None:
        slot = member.slot
        slot.apply(Event.START, now)
        try:
            process = Process(self._plan, slot.plan, slot.generation, now)
        except OSError as error:
            return self._cannot_start(member, now, error)
        member.process = process
        self._loop.watch(process.pidfd, partial(self._on_death, member, process))
        if process.ready:
            slot.apply(Event.READY, now)
        else:
            self._loop.watch(process.link, partial(self._hear, member, process), process.link.has_unsent)
        return None

    def _cannot_start(self, member: Member, now: float, error: OSError) -> None:
        member.error = f"cannot be started: {error}"
        self._console.say(f"{member.slot.plan.name} {member.error}")
        self._after_a_failure(member, now, member.error)

    # ---------------------------------------------------------------- what children say

    def _hear(self, member: Member, process: Process) -> None:
        process.link.flush()
        try:
            for message in process.link.receive():
                self._loop.guard(partial(self._take, member, process, message))
        except FrameError as error:
            process.error = f"sent what is no frame: {error}"
            process.kill()
        if not process.link.is_open:
            self._loop.forget(process.link)

    def _take(self, member: Member, process: Process, message: Mapping[str, Any]) -> None:
        said = self._said.get(str(message.get("type")))
        if said:
            said(member, process, message)
        else:
            self._console.say(f"{process.slot.name} sent a message of the unknown type {message.get('type')!r}")

    def _on_ready(self, member: Member, process: Process, message: Mapping[str, Any]) -> None:
        process.become_ready(message.get("identity"))
        if member.process is process and member.slot.state is State.STARTING:
            member.slot.apply(Event.READY, time.monotonic())
        member.error = ""
        if self._phase is not Phase.STARTING:
            process.link.send({"type": "ready"})
        if member.is_agent:
            for death in self._deaths.unacknowledged:
                process.link.send(death)

    def _on_error(self, member: Member, process: Process, message: Mapping[str, Any]) -> None:
        process.error = member.error = str(message.get("error"))

    def _on_alert(self, _: Member, process: Process, message: Mapping[str, Any]) -> None:
        self._console.say(f"alert of {process.slot.name}: {message.get('text')}")

    def _on_acknowledged(self, _: Member, __: Process, message: Mapping[str, Any]) -> None:
        self._deaths.acknowledge(message.get("id"))

    def _on_retire(self, member: Member, process: Process, message: Mapping[str, Any]) -> None:
        """It wants to be replaced, and finishes its work meanwhile."""
        now = time.monotonic()
        how = str(message["type"])
        process.error = str(message.get("reason"))
        process.retire(now, how)
        if member.process is not process or member.slot.state is State.DRAINING:
            return
        member.process = None
        member.leaving.append(process)
        self._console.say(f"{_name(process)}: {how}, is replaced: {process.error}")
        if how == "recycle":
            member.slot.apply(Event.RECYCLE, now)
        else:
            member.error = process.error
            self._after_a_failure(member, now, f"is tainted: {process.error}")

    # ---------------------------------------------------------------- death

    def _on_death(self, member: Member, process: Process) -> None:
        self._hear(member, process)  # its last words come first
        self._loop.forget(process.link)
        self._loop.forget(process.pidfd)
        cause = process.bury()
        was_leaving = process in member.leaving
        if was_leaving:
            member.leaving.remove(process)
        else:
            member.process = None
        orphans.kill_orphans(process.mark, self._roster.pids())
        member.last_cause = cause
        self._tell_the_agent(process, cause)
        if not was_leaving:
            self._after_a_death(member, process, cause)

    def _tell_the_agent(self, process: Process, cause: Cause) -> None:
        if self._roster.agent is None:
            return
        death = self._deaths.record(
            {
                "slot": process.slot.name,
                "kind": process.slot.kind,
                "role": process.slot.role,
                "pid": process.pid,
                "identity": process.identity,
                "expected": process.asked_to_stop,
                "cause": cause.to_json(),
            }
        )
        agent = self._roster.agent.process
        if agent and agent.ready:
            agent.link.send(death)

    def _after_a_death(self, member: Member, process: Process, cause: Cause) -> None:
        now = time.monotonic()
        if member.slot.state is State.DRAINING:
            member.slot.apply(Event.END, now)
            if cause.status != exits.OK:
                self._console.say(f"{_name(process)} {cause.text}")
        elif cause.status == exits.OK and process.ready and not member.is_agent:
            member.slot.apply(Event.LEAVE, now)
            self._console.say(f"{_name(process)} has left by its own will")
        else:
            self._console.say(f"{_name(process)} died: {cause.text}")
            self._after_a_failure(member, now, f"died: {cause.text}")

    def _after_a_failure(self, member: Member, now: float, text: str) -> None:
        member.slot.apply(Event.FAIL, now, jitter=random.random())
        if self._phase is Phase.STARTING:
            self._failed = True
            self._console.say(f"cannot start, for {member.slot.plan.name} {text}")
            self._stop()

    # ---------------------------------------------------------------- stop

    def _stop(self, *, fast: bool = False) -> None:
        """Stop all but the agent, whose turn comes when they are gone."""
        again = self._phase is Phase.STOPPING
        if again and (self._fast or not fast):
            return
        self._console.say("stopping" + (", with no grace" if fast else ""))
        self._phase = Phase.STOPPING
        self._fast = fast
        for member in self._roster.others:
            self._stop_member(member)
        agent = self._roster.agent
        if agent and any(process.asked_to_stop for process in agent.processes):
            self._stop_member(agent)
        if self._acknowledge_by is not None:
            self._acknowledge_by = time.monotonic() + 1.0

    def _stop_member(self, member: Member) -> None:
        now = time.monotonic()
        member.slot.apply(Event.STOP, now)
        for process in member.processes:
            if self._fast or process is member.process:
                # What has not booted yet has no work to finish.
                process.ask_to_stop(now, process.slot.grace if process.ready and not self._fast else 0.0)

    def _go_on_stopping(self, now: float) -> None:
        """When the others have gone and the agent has dealt with their deaths, stop it too."""
        if any(member.processes for member in self._roster.others):
            return
        agent = self._roster.agent
        if agent and agent.slot.state not in (State.DRAINING, State.STOPPED):
            if self._acknowledge_by is None:
                self._acknowledge_by = now + (1.0 if self._fast else ACKNOWLEDGE_WITHIN)
            if self._deaths.unacknowledged and now < self._acknowledge_by and self._agent_can_answer(agent):
                return
            self._stop_member(agent)
        self._acknowledge_by = None
        self._finished = not any(self._roster.processes())

    def _agent_can_answer(self, agent: Member) -> bool:
        return not self._failed or (agent.process is not None and agent.process.ready)

    def _leave_nothing_behind(self) -> None:
        """Kill what the processes have started outside of their groups; what is killed may bring more to light."""
        for _ in range(100):
            if not orphans.kill_all_orphans(self._roster.pids()):
                break
            time.sleep(0.01)
            orphans.reap_orphans(set())

    # ---------------------------------------------------------------- signals and commands

    def _on_signals(self, numbers: list[int]) -> None:
        for number in numbers:
            if number != signal.SIGCHLD:  # which only wakes the loop, for orphans: children have their pidfds
                self._signals += 1
                self._stop(fast=self._signals > 1)

    def _answer(self, command: Mapping[str, Any]) -> Mapping[str, object]:
        known = self._commands.get(str(command.get("command")))
        if known is None:
            return {"error": f"unknown command {command.get('command')!r}: one of {', '.join(self._commands)}"}
        return known(command)

    def _status(self, _: Mapping[str, Any]) -> Mapping[str, object]:
        now = time.monotonic()
        return {
            "node": self._plan.node,
            "pid": os.getpid(),
            "state": self._phase.value,
            "started_at": self._started_at.isoformat(),
            "slots": [member.to_json(now) for member in self._roster.members],
        }

    def _stop_command(self, command: Mapping[str, Any]) -> Mapping[str, object]:
        self._stop(fast=bool(command.get("fast")))
        return {"pid": os.getpid()}


def _name(process: Process) -> str:
    return f"{process.slot.name} (process {process.pid})"


def exec_master(plan: Mapping[str, object]) -> NoReturn:
    """Become the master of a plan: this process is replaced by a fresh interpreter that loads only the master.

    Args:
        plan: as JSON has it; see `peerd.supervision.plan`.
    """
    fd = os.memfd_create("peerd-plan", 0)
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(json.dumps(plan).encode())
    os.lseek(fd, 0, os.SEEK_SET)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-P", "-m", "peerd.supervision.master", str(fd)])  # noqa: S606


def main(fd: int) -> int:
    """Be the master of the plan on a descriptor; return the exit status."""
    faulthandler.enable()
    try:
        with os.fdopen(fd, "rb") as file:
            plan = Plan.parse(json.load(file))
        with NodeLock(Path(plan.run_directory)):
            return Master(plan).run()
    except AlreadyRunning as error:
        sys.stderr.write(f"peerd: {error}\n")
        return exits.ALREADY_RUNNING
    except (PlanError, ValueError, OSError) as error:
        sys.stderr.write(f"peerd: cannot start: {error}\n")
        return exits.REFUSED


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
