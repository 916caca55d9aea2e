"""Keeps slots filled: starts their processes, hears what they say, buries them, and says what follows for the slot."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from peerd.runtime.messages.frames import FrameError
from peerd.runtime.process import exit_codes
from peerd.supervision.alert_forwarding import Alerts
from peerd.supervision.control.channel import ROUND
from peerd.supervision.event_loop import Loop
from peerd.supervision.exits import orphans
from peerd.supervision.exits.exit_cause import CPU_LIMIT, MEMORY_LIMIT, Cause, wish
from peerd.supervision.exits.exit_reports import Deaths
from peerd.supervision.exits.oom import OutOfMemory
from peerd.supervision.host.listening_sockets import Sockets
from peerd.supervision.host.log_reopening import Logs
from peerd.supervision.plan import Kind, Plan
from peerd.supervision.processes.child_process import Process
from peerd.supervision.processes.process_table import Member, Outcome, Replacement, Roster
from peerd.supervision.processes.slot import Event, State

CRASH_LOOP: Final = 3
"""Failures in a row after which a slot is worth an alert."""


class Keeper:
    """The hands of the master. When to start, replace and stop a slot is decided elsewhere."""

    def __init__(
        self,
        plan: Plan,
        roster: Roster,
        loop: Loop,
        alerts: Alerts,
        deaths: Deaths,
        logs: Logs,
        sockets: Sockets,
        on_failure: Callable[[str], None],
    ) -> None:
        """Make it.

        Args:
            plan: the node's.
            roster: its slots.
            loop: where processes are watched.
            alerts: where people are told.
            deaths: where the agent is told.
            logs: what is opened anew when a child asks for it.
            sockets: what processes listen on.
            on_failure: gets each failure of a slot, in words; the slot is due to be started again then.
        """
        self._plan = plan
        self._roster = roster
        self._loop = loop
        self._alerts = alerts
        self._deaths = deaths
        self._sockets = sockets
        self._on_failure = on_failure
        self._out_of_memory = OutOfMemory()
        self._node_is_ready = False
        self.said: dict[str, Callable[[Member, Process, Mapping[str, Any]], object]] = {
            "ready": self._on_ready,
            "still-booting": self._on_still_booting,
            "boot-failed": self._on_error,
            "crashed": self._on_error,
            "stuck": self._on_stuck,
            "tainted": self._on_retire,
            "hung": self._on_retire,
            "drain": self._on_retire,
            "recycle": self._on_retire,
            "vitals": self._on_vitals,
            "samples": self._on_samples,
            "replace": self._on_replace,
            "alert": self._on_alert,
            "death-acknowledged": self._on_acknowledged,
            "reopen-logs": lambda *_: logs.reopen(),
        }
        """What is done with each type of message that a child may send."""

    def start(self, member: Member, now: float) -> None:
        """Start a process for a slot that has none."""
        slot = member.slot
        slot.apply(Event.START, now)
        try:
            member.process = self._begin(member, slot.kind, now)
        except Exception as error:  # noqa: BLE001 - no process, no memory, no descriptor …: it is tried again
            member.error = f"cannot be started: {error}"
            self._fail(member, now, member.error)
            return
        if member.process.ready:
            self._go_on_running(member, now)

    def replace(self, member: Member, replacement: Replacement, now: float) -> None:
        """Have a new process in a slot; the outcome is told to the replacement.

        Where one can be beside the other, the new one boots first, and takes over when it is ready; if it dies before,
        the old one stays. There is one agent only, and other programs may need what their elder holds: there the old
        one ends first.
        """
        slot = member.slot
        replacement.former = slot.kind
        match slot.state:
            case State.RUNNING if member.process is not None and slot.kind.role in {"agent", "command"}:
                member.replacement = replacement
                member.process.ask_to_stop(now, slot.kind.grace, replacement.because)
            case State.RUNNING if member.process is not None:
                self._start_a_successor(member, replacement, now)
            case State.BACKOFF | State.EXITED:
                member.replacement = replacement
                slot.kind = replacement.kind
                slot.try_again_now(now)
                self.start(member, now)
            case State.STARTING:
                return  # it may be asked again when that has become something
            case _:
                replacement.end(Outcome.DONE)  # it stops: there is nothing to replace

    def stop(self, member: Member, *, fast: bool, because: Cause | None = None) -> None:
        """Ask a slot's processes to stop; those that leave already, if they have no deadline, or it is to be fast."""
        now = time.monotonic()
        member.slot.apply(Event.STOP, now)
        if member.replacement:
            member.replacement.end(Outcome.ABANDONED, "the slot is stopped")
        filling = [one for one in (member.process, member.successor) if one]
        draining = [one for one in member.leaving if one.drains and because is None]  # else it has a reason to go on
        for process in member.processes if fast else [*filling, *draining]:
            # What has not booted yet has no work to finish.
            process.ask_to_stop(now, process.kind.grace if process.ready and not fast else 0.0, because)

    def tell_that_the_node_is_ready(self) -> None:
        """Tell it to all processes, and to each that comes later."""
        self._node_is_ready = True
        for process in self._roster.processes():
            process.link.send({"type": "ready"})

    # ---------------------------------------------------------------- processes begin

    def _begin(self, member: Member, kind: Kind, now: float) -> Process:
        sockets = self._sockets.descriptors(kind.sockets)
        process = Process(self._plan, kind, member.slot.name, member.slot.next_generation(), now, sockets)
        self._loop.watch(process.pidfd, partial(self._on_death, member, process))
        if not process.ready:
            self._loop.watch(process.link, partial(self._hear, member, process), process.link.has_unsent)
        return process

    def _start_a_successor(self, member: Member, replacement: Replacement, now: float) -> None:
        try:
            member.successor = self._begin(member, replacement.kind, now)
        except Exception as error:  # noqa: BLE001 - as in start; here the old process is still there
            replacement.end(Outcome.ABANDONED, f"cannot be started: {error}")
        else:
            member.replacement = replacement

    def _take_over(self, member: Member, now: float) -> None:
        """A successor is ready: from now on it is the slot's process, and its elder finishes its work."""
        elder, member.process, member.successor = member.process, member.successor, None
        if member.replacement:
            member.slot.kind = member.replacement.kind
            member.replacement.end(Outcome.DONE)
        member.slot.apply(Event.REPLACED, now)
        if elder:
            elder.ask_to_stop(now, elder.kind.grace, member.replacement.because if member.replacement else None)
            member.leaving.append(elder)

    def _go_on_running(self, member: Member, now: float) -> None:
        member.slot.apply(Event.READY, now)
        if member.replacement and member.replacement.kind == member.slot.kind:
            member.replacement.end(Outcome.DONE)

    def _promote_the_successor(self, member: Member, now: float) -> None:
        """The slot's own process has failed while another one boots to take over: that one is it now."""
        if member.successor is None or member.slot.state is not State.BACKOFF:
            return
        if member.replacement:
            member.slot.kind = member.replacement.kind
        member.process, member.successor = member.successor, None
        member.slot.apply(Event.START, now)

    # ---------------------------------------------------------------- what children say

    def _hear(self, member: Member, process: Process, most: float = ROUND) -> None:
        process.link.flush()
        process.hear(time.monotonic())
        try:
            for message in process.link.receive(most):
                self._loop.guard(partial(self._take, member, process, message))
        except FrameError as error:
            process.error = f"sent what is no frame: {error}"
            process.kill()
        if not process.link.is_open:
            self._loop.forget(process.link)

    def _take(self, member: Member, process: Process, message: Mapping[str, Any]) -> None:
        said = self.said.get(str(message.get("type")))
        if said:
            said(member, process, message)
        else:
            self._alerts.say(f"{process.slot} sent a message of the unknown type {message.get('type')!r}")

    def _on_ready(self, member: Member, process: Process, message: Mapping[str, Any]) -> None:
        now = time.monotonic()
        process.become_ready(message.get("identity"))
        if self._node_is_ready:
            process.link.send({"type": "ready"})
        if member.successor is process:
            self._take_over(member, now)
        elif member.process is process and member.slot.state is State.STARTING:
            self._go_on_running(member, now)
        if member.process is process:
            member.error = ""
        if member.is_agent:
            self._deaths.tell_all(process)

    def _on_still_booting(self, member: Member, process: Process, message: Mapping[str, Any]) -> None:
        member.error = str(message.get("reason"))
        process.go_on_booting(time.monotonic())

    def _on_error(self, member: Member, process: Process, message: Mapping[str, Any]) -> None:
        process.error = member.error = str(message.get("error"))

    def _on_vitals(self, _: Member, process: Process, message: Mapping[str, Any]) -> None:
        process.vitals = {name: value for name, value in message.items() if name != "type"}

    def _on_samples(self, _: Member, __: Process, message: Mapping[str, Any]) -> None:
        samples = message.get("processes")
        for pid, sample in samples.items() if isinstance(samples, dict) else ():
            if found := self._roster.find(int(pid)):
                found[1].sample = sample

    def _on_replace(self, _: Member, __: Process, message: Mapping[str, Any]) -> None:
        """The agent has seen that a process uses too much."""
        member, process = self._roster.find(message.get("pid")) or (None, None)
        how = message.get("how")
        because = wish(how if how in {MEMORY_LIMIT, CPU_LIMIT} else MEMORY_LIMIT, str(message.get("reason")))
        if process is not None and process.drains:  # it has a successor already
            process.ask_to_stop(time.monotonic(), process.kind.grace, because)
            self._alerts.say(f"{process} has its grace to end: {because.text}")
        if member is None or member.process is not process:
            return  # it has gone meanwhile, or leaves
        if member.slot.state is not State.RUNNING or member.replacing:
            return
        self._alerts.say(f"{process} is replaced: {because.text}")
        self.replace(member, Replacement(member.slot.kind, because), time.monotonic())

    def _on_alert(self, _: Member, process: Process, message: Mapping[str, Any]) -> None:
        self._alerts.relay(process, message)

    def _on_acknowledged(self, _: Member, __: Process, message: Mapping[str, Any]) -> None:
        self._deaths.acknowledge(message.get("id"))

    def _on_stuck(self, _: Member, process: Process, message: Mapping[str, Any]) -> None:
        """A handler of it does not end; that it is tainted for it comes next."""
        attempt = message.get("attempt")
        if isinstance(attempt, dict):
            process.stuck.append(attempt)

    def _on_retire(self, member: Member, process: Process, message: Mapping[str, Any]) -> None:
        """It wants to be replaced at once, and finishes its work meanwhile."""
        now = time.monotonic()
        how = str(message["type"])
        process.error = str(message.get("reason"))
        if how == "drain":
            process.drain()
        else:
            process.retire(now, how)
        if member.process is not process or member.slot.state is State.DRAINING:
            if how in {"tainted", "hung"} and process in member.leaving:  # it drains, and has a deadline from now on
                self._alerts.about(member, process, how, f"{process} is {how}: {process.error}")
            return
        member.process = None
        member.leaving.append(process)
        if how in {"drain", "recycle"}:
            member.slot.apply(Event.RECYCLE, now)
            self._alerts.say(f"{process} is replaced: {process.error}")
        else:
            member.error = process.error
            self._fail(member, now, f"{process} is {how}: {process.error}")
            self._alerts.about(member, process, how, f"{process} is {how}: {process.error}")
        self._promote_the_successor(member, now)

    # ---------------------------------------------------------------- death

    def _on_death(self, member: Member, process: Process) -> None:
        self._hear(member, process, most=math.inf)  # its last words come first
        self._loop.forget(process.link)
        self._loop.forget(process.pidfd)
        cause = process.bury(self._out_of_memory)
        filled, was_to_follow = member.process is process, member.successor is process
        member.remove(process)
        member.last_cause = cause
        orphans.kill_orphans(process.mark, self._roster.pids())
        self._deaths.tell(process, cause)
        if was_to_follow:
            self._after_an_abandoned_boot(member, process, cause)
        if filled:
            self._after_a_death(member, process, cause)

    def _after_an_abandoned_boot(self, member: Member, process: Process, cause: Cause) -> None:
        if process.asked_to_stop:
            return
        member.error = f"generation {process.generation} was abandoned: {cause.text}"
        if member.replacement:
            member.replacement.end(Outcome.ABANDONED, f"{process} died: {cause.text}")

    def _after_a_death(self, member: Member, process: Process, cause: Cause) -> None:
        now = time.monotonic()
        if member.slot.state is State.DRAINING:
            member.slot.apply(Event.END, now)
            if cause.status != exit_codes.OK:
                self._alerts.say(f"{process} {cause.text}")
        elif process.asked_to_stop and member.replacement:  # it ended first, so that another can follow
            member.slot.kind = member.replacement.kind
            member.slot.apply(Event.RECYCLE, now)
        elif cause.status == exit_codes.OK and process.ready and not member.is_agent:
            member.slot.apply(Event.LEAVE, now)
            self._alerts.say(f"{process} has left by its own will")
        else:
            self._fail(member, now, f"{process} died: {cause.text}")
        self._promote_the_successor(member, now)

    def _fail(self, member: Member, now: float, text: str) -> None:
        member.slot.apply(Event.FAIL, now, jitter=random.random())
        if member.replacement and member.successor is None and member.replacement.outcome is Outcome.PENDING:
            member.replacement.end(Outcome.ABANDONED, text)
            member.slot.kind = member.replacement.former or member.slot.kind
        self._on_failure(text)
        if member.slot.failures >= CRASH_LOOP:
            many = f"{member.slot.name} has failed {member.slot.failures} times in a row: {text}"
            self._alerts.about(member, None, "crash-loop", many)
