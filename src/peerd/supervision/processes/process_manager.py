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
from peerd.supervision.alert_forwarding import AlertForwarder
from peerd.supervision.control.channel import MAX_READ_BYTES
from peerd.supervision.event_loop import SelectorLoop
from peerd.supervision.exits import orphans
from peerd.supervision.exits.exit_cause import CPU_LIMIT, MEMORY_LIMIT, ExitCause, stop_reason
from peerd.supervision.exits.exit_reports import ExitReports
from peerd.supervision.exits.oom import OomKillCounter
from peerd.supervision.host.listening_sockets import ListeningSockets
from peerd.supervision.host.log_reopening import LogReopener
from peerd.supervision.plan import Kind, Plan
from peerd.supervision.processes.child_process import ChildProcess
from peerd.supervision.processes.process_table import ProcessTable, Replacement, ReplacementOutcome, SlotEntry
from peerd.supervision.processes.slot import SlotEvent, SlotState

CRASH_LOOP_FAILURES: Final = 3
"""Failures in a row after which a slot is worth an alert."""


class ProcessManager:
    """The hands of the master. When to start, replace and stop a slot is decided elsewhere."""

    def __init__(
        self,
        plan: Plan,
        table: ProcessTable,
        loop: SelectorLoop,
        alerts: AlertForwarder,
        exit_reports: ExitReports,
        logs: LogReopener,
        sockets: ListeningSockets,
        on_failure: Callable[[str], None],
    ) -> None:
        """Make it.

        Args:
            plan: the node's.
            table: its slots.
            loop: where processes are watched.
            alerts: where people are told.
            exit_reports: where the agent is told.
            logs: what is opened anew when a child asks for it.
            sockets: what processes listen on.
            on_failure: gets each failure of a slot, in words; the slot is due to be started again then.
        """
        self._plan = plan
        self._table = table
        self._loop = loop
        self._alerts = alerts
        self._exit_reports = exit_reports
        self._sockets = sockets
        self._on_failure = on_failure
        self._out_of_memory = OomKillCounter()
        self._node_is_ready = False
        self.on_message: dict[str, Callable[[SlotEntry, ChildProcess, Mapping[str, Any]], object]] = {
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

    def start(self, entry: SlotEntry, now: float) -> None:
        """Start a process for a slot that has none."""
        slot = entry.slot
        slot.apply(SlotEvent.START, now)
        try:
            entry.process = self._spawn(entry, slot.kind, now)
        except Exception as error:  # noqa: BLE001 - no process, no memory, no descriptor …: it is tried again
            entry.error = f"cannot be started: {error}"
            self._fail(entry, now, entry.error)
            return
        if entry.process.ready:
            self._mark_running(entry, now)

    def replace(self, entry: SlotEntry, replacement: Replacement, now: float) -> None:
        """Have a new process in a slot; the outcome is told to the replacement.

        Where one can be beside the other, the new one boots first, and takes over when it is ready; if it dies before,
        the old one stays. There is one agent only, and other programs may need what their elder holds: there the old
        one ends first.
        """
        slot = entry.slot
        replacement.previous_kind = slot.kind
        match slot.state:
            case SlotState.RUNNING if entry.process is not None and slot.kind.role in {"agent", "command"}:
                entry.replacement = replacement
                entry.process.ask_to_stop(now, slot.kind.grace, replacement.reason)
            case SlotState.RUNNING if entry.process is not None:
                self._start_successor(entry, replacement, now)
            case SlotState.BACKOFF | SlotState.EXITED:
                entry.replacement = replacement
                slot.kind = replacement.kind
                slot.try_again_now(now)
                self.start(entry, now)
            case SlotState.STARTING:
                return  # it may be asked again when that has become something
            case _:
                replacement.finish(ReplacementOutcome.DONE)  # it stops: there is nothing to replace

    def stop(self, entry: SlotEntry, *, fast: bool, reason: ExitCause | None = None) -> None:
        """Ask a slot's processes to stop; those that leave already, if they have no deadline, or it is to be fast."""
        now = time.monotonic()
        entry.slot.apply(SlotEvent.STOP, now)
        if entry.replacement:
            entry.replacement.finish(ReplacementOutcome.ABANDONED, "the slot is stopped")
        current = [one for one in (entry.process, entry.successor) if one]
        draining = [one for one in entry.leaving if one.is_draining and reason is None]  # else it has a reason to go on
        for process in entry.processes if fast else [*current, *draining]:
            # What has not booted yet has no work to finish.
            process.ask_to_stop(now, process.kind.grace if process.ready and not fast else 0.0, reason)

    def announce_node_ready(self) -> None:
        """Tell it to all processes, and to each that comes later."""
        self._node_is_ready = True
        for process in self._table.processes():
            process.link.send({"type": "ready"})

    # ---------------------------------------------------------------- processes begin

    def _spawn(self, entry: SlotEntry, kind: Kind, now: float) -> ChildProcess:
        sockets = self._sockets.descriptors(kind.sockets)
        process = ChildProcess(self._plan, kind, entry.slot.name, entry.slot.next_generation(), now, sockets)
        self._loop.register(process.pidfd, partial(self._on_exit, entry, process))
        if not process.ready:
            self._loop.register(process.link, partial(self._receive, entry, process), process.link.has_unsent)
        return process

    def _start_successor(self, entry: SlotEntry, replacement: Replacement, now: float) -> None:
        try:
            entry.successor = self._spawn(entry, replacement.kind, now)
        except Exception as error:  # noqa: BLE001 - as in start; here the old process is still there
            replacement.finish(ReplacementOutcome.ABANDONED, f"cannot be started: {error}")
        else:
            entry.replacement = replacement

    def _take_over(self, entry: SlotEntry, now: float) -> None:
        """A successor is ready: from now on it is the slot's process, and its elder finishes its work."""
        predecessor, entry.process, entry.successor = entry.process, entry.successor, None
        if entry.replacement:
            entry.slot.kind = entry.replacement.kind
            entry.replacement.finish(ReplacementOutcome.DONE)
        entry.slot.apply(SlotEvent.REPLACED, now)
        if predecessor:
            predecessor.ask_to_stop(
                now, predecessor.kind.grace, entry.replacement.reason if entry.replacement else None
            )
            entry.leaving.append(predecessor)

    def _mark_running(self, entry: SlotEntry, now: float) -> None:
        entry.slot.apply(SlotEvent.READY, now)
        if entry.replacement and entry.replacement.kind == entry.slot.kind:
            entry.replacement.finish(ReplacementOutcome.DONE)

    def _promote_successor(self, entry: SlotEntry, now: float) -> None:
        """The slot's own process has failed while another one boots to take over: that one is it now."""
        if entry.successor is None or entry.slot.state is not SlotState.BACKOFF:
            return
        if entry.replacement:
            entry.slot.kind = entry.replacement.kind
        entry.process, entry.successor = entry.successor, None
        entry.slot.apply(SlotEvent.START, now)

    # ---------------------------------------------------------------- what children say

    def _receive(self, entry: SlotEntry, process: ChildProcess, max_bytes: float = MAX_READ_BYTES) -> None:
        process.link.flush()
        process.record_contact(time.monotonic())
        try:
            for message in process.link.receive(max_bytes):
                self._loop.run_guarded(partial(self._dispatch, entry, process, message))
        except FrameError as error:
            process.error = f"sent what is no frame: {error}"
            process.kill()
        if not process.link.is_open:
            self._loop.unregister(process.link)

    def _dispatch(self, entry: SlotEntry, process: ChildProcess, message: Mapping[str, Any]) -> None:
        on_message = self.on_message.get(str(message.get("type")))
        if on_message:
            on_message(entry, process, message)
        else:
            self._alerts.log(f"{process.slot} sent a message of the unknown type {message.get('type')!r}")

    def _on_ready(self, entry: SlotEntry, process: ChildProcess, message: Mapping[str, Any]) -> None:
        now = time.monotonic()
        process.mark_ready(message.get("identity"))
        if self._node_is_ready:
            process.link.send({"type": "ready"})
        if entry.successor is process:
            self._take_over(entry, now)
        elif entry.process is process and entry.slot.state is SlotState.STARTING:
            self._mark_running(entry, now)
        if entry.process is process:
            entry.error = ""
        if entry.is_agent:
            self._exit_reports.report_all(process)

    def _on_still_booting(self, entry: SlotEntry, process: ChildProcess, message: Mapping[str, Any]) -> None:
        entry.error = str(message.get("reason"))
        process.extend_boot(time.monotonic())

    def _on_error(self, entry: SlotEntry, process: ChildProcess, message: Mapping[str, Any]) -> None:
        process.error = entry.error = str(message.get("error"))

    def _on_vitals(self, _: SlotEntry, process: ChildProcess, message: Mapping[str, Any]) -> None:
        process.vitals = {name: value for name, value in message.items() if name != "type"}

    def _on_samples(self, _: SlotEntry, __: ChildProcess, message: Mapping[str, Any]) -> None:
        samples = message.get("processes")
        for pid, sample in samples.items() if isinstance(samples, dict) else ():
            if found := self._table.find(int(pid)):
                found[1].sample = sample

    def _on_replace(self, _: SlotEntry, __: ChildProcess, message: Mapping[str, Any]) -> None:
        """The agent has seen that a process uses too much."""
        entry, process = self._table.find(message.get("pid")) or (None, None)
        how = message.get("how")
        reason = stop_reason(how if how in {MEMORY_LIMIT, CPU_LIMIT} else MEMORY_LIMIT, str(message.get("reason")))
        if process is not None and process.is_draining:  # it has a successor already
            process.ask_to_stop(time.monotonic(), process.kind.grace, reason)
            self._alerts.log(f"{process} has its grace to end: {reason.text}")
        if entry is None or entry.process is not process:
            return  # it has gone meanwhile, or leaves
        if entry.slot.state is not SlotState.RUNNING or entry.replacing:
            return
        self._alerts.log(f"{process} is replaced: {reason.text}")
        self.replace(entry, Replacement(entry.slot.kind, reason), time.monotonic())

    def _on_alert(self, _: SlotEntry, process: ChildProcess, message: Mapping[str, Any]) -> None:
        self._alerts.forward(process, message)

    def _on_acknowledged(self, _: SlotEntry, __: ChildProcess, message: Mapping[str, Any]) -> None:
        self._exit_reports.acknowledge(message.get("id"))

    def _on_stuck(self, _: SlotEntry, process: ChildProcess, message: Mapping[str, Any]) -> None:
        """A handler of it does not end; that it is tainted for it comes next."""
        attempt = message.get("attempt")
        if isinstance(attempt, dict):
            process.stuck.append(attempt)

    def _on_retire(self, entry: SlotEntry, process: ChildProcess, message: Mapping[str, Any]) -> None:
        """It wants to be replaced at once, and finishes its work meanwhile."""
        now = time.monotonic()
        how = str(message["type"])
        process.error = str(message.get("reason"))
        if how == "drain":
            process.drain()
        else:
            process.retire(now, how)
        if entry.process is not process or entry.slot.state is SlotState.DRAINING:
            if how in {"tainted", "hung"} and process in entry.leaving:  # it drains, and has a deadline from now on
                self._alerts.raise_alert(entry, process, how, f"{process} is {how}: {process.error}")
            return
        entry.process = None
        entry.leaving.append(process)
        if how in {"drain", "recycle"}:
            entry.slot.apply(SlotEvent.RECYCLE, now)
            self._alerts.log(f"{process} is replaced: {process.error}")
        else:
            entry.error = process.error
            self._fail(entry, now, f"{process} is {how}: {process.error}")
            self._alerts.raise_alert(entry, process, how, f"{process} is {how}: {process.error}")
        self._promote_successor(entry, now)

    # ---------------------------------------------------------------- death

    def _on_exit(self, entry: SlotEntry, process: ChildProcess) -> None:
        self._receive(entry, process, max_bytes=math.inf)  # its last words come first
        self._loop.unregister(process.link)
        self._loop.unregister(process.pidfd)
        cause = process.reap(self._out_of_memory)
        was_current, was_successor = entry.process is process, entry.successor is process
        entry.remove(process)
        entry.last_cause = cause
        orphans.kill_orphans(process.mark, self._table.pids())
        self._exit_reports.report(process, cause)
        if was_successor:
            self._after_failed_boot(entry, process, cause)
        if was_current:
            self._after_exit(entry, process, cause)

    def _after_failed_boot(self, entry: SlotEntry, process: ChildProcess, cause: ExitCause) -> None:
        if process.asked_to_stop:
            return
        entry.error = f"generation {process.generation} was abandoned: {cause.text}"
        if entry.replacement:
            entry.replacement.finish(ReplacementOutcome.ABANDONED, f"{process} died: {cause.text}")

    def _after_exit(self, entry: SlotEntry, process: ChildProcess, cause: ExitCause) -> None:
        now = time.monotonic()
        if entry.slot.state is SlotState.DRAINING:
            entry.slot.apply(SlotEvent.END, now)
            if cause.status != exit_codes.OK:
                self._alerts.log(f"{process} {cause.text}")
        elif process.asked_to_stop and entry.replacement:  # it ended first, so that another can follow
            entry.slot.kind = entry.replacement.kind
            entry.slot.apply(SlotEvent.RECYCLE, now)
        elif cause.status == exit_codes.OK and process.ready and not entry.is_agent:
            entry.slot.apply(SlotEvent.LEAVE, now)
            self._alerts.log(f"{process} has left by its own will")
        else:
            self._fail(entry, now, f"{process} died: {cause.text}")
        self._promote_successor(entry, now)

    def _fail(self, entry: SlotEntry, now: float, text: str) -> None:
        entry.slot.apply(SlotEvent.FAIL, now, jitter=random.random())
        if entry.replacement and entry.successor is None and entry.replacement.outcome is ReplacementOutcome.PENDING:
            entry.replacement.finish(ReplacementOutcome.ABANDONED, text)
            entry.slot.kind = entry.replacement.previous_kind or entry.slot.kind
        self._on_failure(text)
        if entry.slot.failures >= CRASH_LOOP_FAILURES:
            many = f"{entry.slot.name} has failed {entry.slot.failures} times in a row: {text}"
            self._alerts.raise_alert(entry, None, "crash-loop", many)
