"""Keeps slots filled: starts their processes, hears what they say, buries them, and says what follows for the slot."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from peerd.runtime import exits
from peerd.runtime.frames import FrameError
from peerd.supervision import orphans
from peerd.supervision.cause import Cause
from peerd.supervision.console import Console
from peerd.supervision.deaths import Deaths
from peerd.supervision.loop import Loop
from peerd.supervision.plan import Plan
from peerd.supervision.process import Process
from peerd.supervision.roster import Member, Roster
from peerd.supervision.slot import Event, State


class Keeper:
    """The hands of the master. When to start and stop a slot is the master's decision."""

    def __init__(
        self,
        plan: Plan,
        roster: Roster,
        loop: Loop,
        console: Console,
        deaths: Deaths,
        on_failure: Callable[[str], None],
    ) -> None:
        """Make it.

        Args:
            plan: the node's.
            roster: its slots.
            loop: where processes are watched.
            console: where people read.
            deaths: where the agent is told.
            on_failure: gets each failure of a slot, in words; the slot is due to be started again then.
        """
        self._plan = plan
        self._roster = roster
        self._loop = loop
        self._console = console
        self._deaths = deaths
        self._on_failure = on_failure
        self._node_is_ready = False
        self._said: dict[str, Callable[[Member, Process, Mapping[str, Any]], None]] = {
            "ready": self._on_ready,
            "still-booting": self._on_still_booting,
            "boot-failed": self._on_error,
            "crashed": self._on_error,
            "tainted": self._on_retire,
            "recycle": self._on_retire,
            "alert": self._on_alert,
            "death-acknowledged": self._on_acknowledged,
        }

    def start(self, member: Member, now: float) -> None:
        """Start a process for a slot that has none."""
        slot = member.slot
        slot.apply(Event.START, now)
        try:
            process = Process(self._plan, slot.plan, slot.generation, now)
        except Exception as error:  # noqa: BLE001 - no process, no memory, no descriptor …: it is tried again
            member.error = f"cannot be started: {error}"
            self._fail(member, now, member.error)
            return
        member.process = process
        self._loop.watch(process.pidfd, partial(self._on_death, member, process))
        if process.ready:
            slot.apply(Event.READY, now)
        else:
            self._loop.watch(process.link, partial(self._hear, member, process), process.link.has_unsent)

    def stop(self, member: Member, *, fast: bool) -> None:
        """Ask a slot's process to stop, and if it is to be fast, also those that leave already."""
        now = time.monotonic()
        member.slot.apply(Event.STOP, now)
        for process in member.processes if fast else filter(None, [member.process]):
            # What has not booted yet has no work to finish.
            process.ask_to_stop(now, process.slot.grace if process.ready and not fast else 0.0)

    def tell_that_the_node_is_ready(self) -> None:
        """Tell it to all processes, and to each that comes later."""
        self._node_is_ready = True
        for process in self._roster.processes():
            process.link.send({"type": "ready"})

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
        member.error = ""
        if member.process is process and member.slot.state is State.STARTING:
            member.slot.apply(Event.READY, time.monotonic())
        if self._node_is_ready:
            process.link.send({"type": "ready"})
        if member.is_agent:
            self._deaths.tell_all(process)

    def _on_still_booting(self, member: Member, process: Process, message: Mapping[str, Any]) -> None:
        member.error = str(message.get("reason"))
        process.go_on_booting(time.monotonic())

    def _on_error(self, member: Member, process: Process, message: Mapping[str, Any]) -> None:
        process.error = member.error = str(message.get("error"))

    def _on_alert(self, _: Member, process: Process, message: Mapping[str, Any]) -> None:
        self._console.say(f"alert of {process.slot.name}: {message.get('text')}")

    def _on_acknowledged(self, _: Member, __: Process, message: Mapping[str, Any]) -> None:
        self._deaths.acknowledge(message.get("id"))

    def _on_retire(self, member: Member, process: Process, message: Mapping[str, Any]) -> None:
        """It wants to be replaced at once, and finishes its work meanwhile."""
        now = time.monotonic()
        how = str(message["type"])
        process.error = str(message.get("reason"))
        process.retire(now, how)
        if member.process is not process or member.slot.state is State.DRAINING:
            return
        member.process = None
        member.leaving.append(process)
        if how == "recycle":
            member.slot.apply(Event.RECYCLE, now)
            self._console.say(f"{process} is replaced: {process.error}")
        else:
            member.error = process.error
            self._fail(member, now, f"{process} is tainted: {process.error}")

    # ---------------------------------------------------------------- death

    def _on_death(self, member: Member, process: Process) -> None:
        self._hear(member, process)  # its last words come first
        self._loop.forget(process.link)
        self._loop.forget(process.pidfd)
        cause = process.bury()
        filled = member.process is process
        member.remove(process)
        member.last_cause = cause
        orphans.kill_orphans(process.mark, self._roster.pids())
        self._deaths.tell(process, cause)
        if filled:
            self._after_a_death(member, process, cause)

    def _after_a_death(self, member: Member, process: Process, cause: Cause) -> None:
        now = time.monotonic()
        if member.slot.state is State.DRAINING:
            member.slot.apply(Event.END, now)
            if cause.status != exits.OK:
                self._console.say(f"{process} {cause.text}")
        elif cause.status == exits.OK and process.ready and not member.is_agent:
            member.slot.apply(Event.LEAVE, now)
            self._console.say(f"{process} has left by its own will")
        else:
            self._fail(member, now, f"{process} died: {cause.text}")

    def _fail(self, member: Member, now: float, text: str) -> None:
        member.slot.apply(Event.FAIL, now, jitter=random.random())
        self._on_failure(text)
