"""Starts, replaces and stops the processes of slots, and handles their messages and exits."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from peerd.runtime.frames import FrameError
from peerd.runtime.observability import log_file
from peerd.runtime.process import exit_codes
from peerd.supervision import exits
from peerd.supervision.child_process import ChildProcess
from peerd.supervision.event_loop import MAX_READ_BYTES, SelectorLoop
from peerd.supervision.exits import ExitCause, OomKillCounter
from peerd.supervision.listening_sockets import ListeningSockets
from peerd.supervision.plan import MAX_PROCESSES, SINGLETON_ROLES, Kind, Plan
from peerd.supervision.process_table import ProcessTable, Replacement, ReplacementOutcome, SlotEntry
from peerd.supervision.reporting import AgentReports, Console
from peerd.supervision.slot import SlotEvent, SlotState

CRASH_LOOP_FAILURES: Final = 3
"""Consecutive failures of a slot that raise an alert."""


@dataclass(slots=True, eq=False)
class ProcessManager:
    """Manages the processes; when to start, replace and stop them is decided by the master and by reloads.

    Attributes:
        on_failure: called with a description of each failure of a slot, which is then due to be started again.
        on_message: the handler of each type of message from a child; the master adds its own.
    """

    plan: Plan
    table: ProcessTable
    loop: SelectorLoop
    console: Console
    reports: AgentReports
    sockets: ListeningSockets
    on_failure: Callable[[str], None]
    on_message: dict[str, Callable[[SlotEntry, ChildProcess, Mapping[str, Any]], object]] = field(init=False)
    _oom_kills: OomKillCounter = field(init=False, default_factory=OomKillCounter)
    _node_is_ready: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.on_message = {
            "ready": self._on_ready,
            "still-booting": self._on_still_booting,
            "boot-failed": self._on_error,
            "crashed": self._on_error,
            "leaving": lambda _, process, __: process.record_leaving(time.monotonic()),
            "stuck": self._on_stuck,
            "tainted": self._on_retire,
            "hung": self._on_retire,
            "drain": self._on_retire,
            "recycle": self._on_retire,
            "vitals": self._on_vitals,
            "samples": self._on_samples,
            "replace": self._on_replace,
            "alert": lambda _, process, message: self.reports.forward_alert(process, message),
            "reopen-logs": lambda *_: self.reopen_logs(),
            "death-acknowledged": lambda _, __, message: self.reports.acknowledge_exit(message.get("id")),
        }

    def start(self, entry: SlotEntry, now: float) -> None:
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
        """Replace a slot's process; the outcome is set in the replacement.

        The new process boots beside the old one and takes over when it is ready; if it dies before, the old one stays.
        The agent, because there is only one, and commands, which may need exclusive resources, end first.
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
                return  # the caller tries again
            case _:
                replacement.finish(ReplacementOutcome.DONE)  # it is stopping: there is nothing to replace

    def stop(self, entry: SlotEntry, *, fast: bool, reason: ExitCause | None = None) -> None:
        """Ask a slot's processes to stop: also those that leave already, if they have no deadline or `fast` is set."""
        now = time.monotonic()
        entry.slot.apply(SlotEvent.STOP, now)
        if entry.replacement:
            entry.replacement.finish(ReplacementOutcome.ABANDONED, "the slot is stopped")
        current = [one for one in (entry.process, entry.successor) if one]
        draining = [one for one in entry.leaving if one.is_draining(now) and reason is None]  # else the node stays
        for process in entry.processes if fast else [*current, *draining]:
            if process.ready and not fast:
                process.ask_to_leave(now, reason)
            else:  # a process that has not booted has no work to finish
                process.ask_to_stop(now, 0.0, reason)

    def scale(self, name: object, processes: object) -> dict[str, object]:
        """Change the number of processes of a kind; return the answer of the command `scale`."""
        kind = self.table.kinds.get(str(name))
        if kind is None or kind.role in SINGLETON_ROLES:
            known = [one.name for one in self.table.kinds.values() if one.role not in SINGLETON_ROLES]
            return {"error": f"there is no kind {name!r} to scale; only {', '.join(known) or 'none'}"}
        if not isinstance(processes, int) or isinstance(processes, bool) or not 0 <= processes <= MAX_PROCESSES:
            return {"error": f"processes must be a number from 0 to {MAX_PROCESSES}"}
        before = len(self.table.of_kind(kind.name))
        self.stop_removed(self.table.scale(kind, processes), "scaled down")
        self.console.log(f"{kind.name} is scaled from {before} to {processes} processes")
        return {"kind": kind.name, "before": before, "processes": processes}

    def stop_removed(self, entries: Sequence[SlotEntry], reason: str) -> None:
        for entry in entries:
            if entry.slot.state not in {SlotState.STOPPED, SlotState.DRAINING}:
                self.stop(entry, fast=False, reason=ExitCause(exits.SCALED, reason))
                if entry.slot.kind.drains:
                    self._vacate(entry)

    def _vacate(self, entry: SlotEntry) -> None:
        """Empty a slot that is stopping: what drains in it may take any time, and the slot may be wanted before."""
        entry.leaving += [one for one in (entry.process, entry.successor) if one]
        entry.process = entry.successor = None
        if entry.slot.state is SlotState.DRAINING:
            entry.slot.apply(SlotEvent.END, time.monotonic())

    def reopen_logs(self) -> dict[str, object]:
        """Reopen the log file, in the master and in every child; return the answer of the command `reopen-logs`."""
        if self.plan.log_file is None:
            return {"error": "this node has no log file: it writes to the output of the command that started it"}
        try:
            log_file.redirect_output(self.plan.log_file)
        except OSError as error:
            text = f"cannot reopen the log, and continues in the old one: {error}"
            self.console.log(text, level="error")
            return {"error": text}
        for process in self.table.processes():
            process.link.send({"type": "reopen-logs", "file": self.plan.log_file})
        return {"log_file": self.plan.log_file}

    def announce_node_ready(self) -> None:
        """Report that the node is ready to all processes, and later to each new one."""
        self._node_is_ready = True
        for process in self.table.processes():
            process.link.send({"type": "ready"})

    # ---------------------------------------------------------------- start and replacement

    def _spawn(self, entry: SlotEntry, kind: Kind, now: float) -> ChildProcess:
        sockets = self.sockets.descriptors(kind.sockets)
        process = ChildProcess(self.plan, kind, entry.slot.name, entry.slot.next_generation(), now, sockets)
        self.loop.register(process.pidfd, partial(self._on_exit, entry, process))
        if not process.ready:
            self.loop.register(process.link, partial(self._receive, entry, process), process.link.has_unsent)
        return process

    def _start_successor(self, entry: SlotEntry, replacement: Replacement, now: float) -> None:
        try:
            entry.successor = self._spawn(entry, replacement.kind, now)
        except Exception as error:  # noqa: BLE001 - as in start; here the old process still runs
            replacement.finish(ReplacementOutcome.ABANDONED, f"cannot be started: {error}")
        else:
            entry.replacement = replacement

    def _take_over(self, entry: SlotEntry, now: float) -> None:
        """Make a ready successor the slot's process, and ask its predecessor to stop."""
        predecessor, entry.process, entry.successor = entry.process, entry.successor, None
        reason = None
        if entry.replacement:
            entry.slot.kind, reason = entry.replacement.kind, entry.replacement.reason
            entry.replacement.finish(ReplacementOutcome.DONE)
        entry.slot.apply(SlotEvent.REPLACED, now)
        if predecessor:
            predecessor.ask_to_leave(now, reason)
            entry.leaving.append(predecessor)

    def _mark_running(self, entry: SlotEntry, now: float) -> None:
        entry.slot.apply(SlotEvent.READY, now)
        if entry.replacement and entry.replacement.kind == entry.slot.kind:
            entry.replacement.finish(ReplacementOutcome.DONE)

    def _promote_successor(self, entry: SlotEntry, now: float) -> None:
        """Make a booting successor the slot's process if that has failed."""
        if entry.successor is None or entry.slot.state is not SlotState.BACKOFF:
            return
        if entry.replacement:
            entry.slot.kind = entry.replacement.kind
        entry.process, entry.successor = entry.successor, None
        entry.slot.apply(SlotEvent.START, now)

    # ---------------------------------------------------------------- messages of children

    def _receive(self, entry: SlotEntry, process: ChildProcess, max_bytes: float = MAX_READ_BYTES) -> None:
        process.link.flush()
        process.record_contact(time.monotonic())
        try:
            for message in process.link.receive(max_bytes):
                self.loop.run_guarded(partial(self._dispatch, entry, process, message))
        except FrameError as error:
            process.error = f"sent an invalid frame: {error}"
            process.kill()
        if not process.link.is_open:
            self.loop.unregister(process.link)

    def _dispatch(self, entry: SlotEntry, process: ChildProcess, message: Mapping[str, Any]) -> None:
        on_message = self.on_message.get(str(message.get("type")))
        if on_message:
            on_message(entry, process, message)
        else:
            self.console.log(f"{process.slot} sent a message of the unknown type {message.get('type')!r}")

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
            self.reports.resend_exits(process)

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
            if found := self.table.find(int(pid)):
                found[1].sample = sample

    def _on_replace(self, _: SlotEntry, __: ChildProcess, message: Mapping[str, Any]) -> None:
        """The agent has measured that a process exceeds its limits, or a process serves on until it is replaced."""
        entry, process = self.table.find(message.get("pid")) or (None, None)
        how = message.get("how")
        known = how if how in {exits.MEMORY_LIMIT, exits.CPU_LIMIT, exits.RECYCLED} else exits.MEMORY_LIMIT
        reason = ExitCause(known, str(message.get("reason")))
        now = time.monotonic()
        if process is not None and process.is_draining(now):  # it has a successor already
            process.ask_to_stop(now, process.kind.grace, reason)
            self.console.log(f"{process} must end within its grace: {reason.text}")
        if entry is None or entry.process is not process:
            return  # it has ended meanwhile, or is leaving
        if entry.slot.state is not SlotState.RUNNING or entry.replacing:
            return
        self.console.log(f"{process} is replaced: {reason.text}")
        self.replace(entry, Replacement(entry.slot.kind, reason), now)

    def _on_stuck(self, _: SlotEntry, process: ChildProcess, message: Mapping[str, Any]) -> None:
        """A handler does not end; the process reports next that it is tainted."""
        attempt = message.get("attempt")
        if isinstance(attempt, dict):
            process.stuck.append(attempt)

    def _on_retire(self, entry: SlotEntry, process: ChildProcess, message: Mapping[str, Any]) -> None:
        """The process wants to be replaced immediately, and finishes its work meanwhile."""
        now = time.monotonic()
        how = str(message["type"])
        process.error = str(message.get("reason"))
        process.retire(now, how)
        text = f"{process} is {how}: {process.error}"
        if entry.process is not process or entry.slot.state is SlotState.DRAINING:
            if how in {"tainted", "hung"} and process in entry.leaving:  # it was draining, and now has a deadline
                self.reports.raise_alert(entry, process, how, text)
            return
        entry.process = None
        entry.leaving.append(process)
        if how in {"drain", "recycle"}:
            entry.slot.apply(SlotEvent.RECYCLE, now)
            self.console.log(f"{process} is replaced: {process.error}")
        else:
            entry.error = process.error
            self._fail(entry, now, text)
            self.reports.raise_alert(entry, process, how, text)
        self._promote_successor(entry, now)

    # ---------------------------------------------------------------- exits

    def _on_exit(self, entry: SlotEntry, process: ChildProcess) -> None:
        self._receive(entry, process, max_bytes=math.inf)  # its last messages
        self.loop.unregister(process.link)
        self.loop.unregister(process.pidfd)
        cause = process.reap(self._oom_kills)
        was_current, was_successor = entry.process is process, entry.successor is process
        entry.remove(process)
        entry.last_cause = cause
        exits.kill_orphans(process.mark, self.table.pids())
        self.reports.report_exit(process, cause)
        if was_successor and not process.asked_to_stop:
            entry.error = f"generation {process.generation} was abandoned: {cause.text}"
            if entry.replacement:
                entry.replacement.finish(ReplacementOutcome.ABANDONED, f"{process} died: {cause.text}")
        if was_current:
            self._after_exit(entry, process, cause)

    def _after_exit(self, entry: SlotEntry, process: ChildProcess, cause: ExitCause) -> None:
        now = time.monotonic()
        if entry.slot.state is SlotState.DRAINING:
            entry.slot.apply(SlotEvent.END, now)
            if cause.status != exit_codes.OK:
                self.console.log(f"{process} {cause.text}")
        elif process.asked_to_stop and entry.replacement:  # an agent or a command, which ends before its successor
            entry.slot.kind = entry.replacement.kind
            entry.slot.apply(SlotEvent.RECYCLE, now)
        elif cause.status == exit_codes.OK and process.ready and not entry.is_agent:
            entry.slot.apply(SlotEvent.LEAVE, now)
            self.console.log(f"{process} has exited voluntarily")
        else:
            self._fail(entry, now, f"{process} died: {cause.text}")
        self._promote_successor(entry, now)

    def _fail(self, entry: SlotEntry, now: float, text: str) -> None:
        entry.slot.apply(SlotEvent.FAIL, now, jitter=random.random())
        if entry.replacement and entry.successor is None and entry.replacement.outcome is ReplacementOutcome.PENDING:
            entry.replacement.finish(ReplacementOutcome.ABANDONED, text)
            entry.slot.kind = entry.replacement.previous_kind or entry.slot.kind
        self.on_failure(text)
        if entry.slot.failures >= CRASH_LOOP_FAILURES:
            text = f"{entry.slot.name} has failed {entry.slot.failures} times in a row: {text}"
            self.reports.raise_alert(entry, None, "crash-loop", text)
