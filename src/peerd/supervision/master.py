"""The master: the one process that one starts, and that must never fall.

It starts the node's processes in order, keeps each slot filled, tells the agent of each death, replaces processes by
new ones when asked, and stops the node in order. It runs no user code, opens no database, and loads nothing but the
standard library and its own few modules. One thread, one loop. What follows from an event for a slot is decided in
`slot`, what is done with processes in `keeper`, the order of a reload in `reload`; here is decided when.

    python -P -m peerd.supervision.master FD        the plan, JSON, is read from this descriptor
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final

from peerd.runtime.messages.addressing import DEFAULT_REPLY_TIMEOUT
from peerd.runtime.observability import logfile
from peerd.runtime.process import exit_codes
from peerd.runtime.process.process_tree import become_subreaper
from peerd.supervision.alert_forwarding import AlertForwarder
from peerd.supervision.console import CANNOT_START, Console
from peerd.supervision.control.control_server import ControlServer, DeferredAnswer
from peerd.supervision.event_loop import SelectorLoop
from peerd.supervision.exits import orphans
from peerd.supervision.exits.exit_cause import SCALED, stop_reason
from peerd.supervision.exits.exit_reports import ExitReports
from peerd.supervision.host.descriptor_limit import raise_descriptor_limit
from peerd.supervision.host.launch import STOP_SIGNALS
from peerd.supervision.host.listening_sockets import ListenError, ListeningSockets, SystemdSockets
from peerd.supervision.host.log_reopening import LogReopener
from peerd.supervision.host.node_lock import AlreadyRunning, NodeLock, UnsafeRunDirectory
from peerd.supervision.host.sd_notify import NodeCondition, SystemdNotifier
from peerd.supervision.host.tty import has_controlling_tty
from peerd.supervision.messages.message_router import MessageRouter
from peerd.supervision.messages.process_directory import build_directory, routing_handlers
from peerd.supervision.plan import MAX_PROCESSES, SINGLETON_ROLES, Plan, PlanError
from peerd.supervision.processes.child_process import ChildProcess
from peerd.supervision.processes.health import format_status_line, is_healthy
from peerd.supervision.processes.process_manager import ProcessManager
from peerd.supervision.processes.process_table import ProcessTable, SlotEntry
from peerd.supervision.processes.slot import SlotState
from peerd.supervision.reload.coordinator import ReloadCoordinator

ACKNOWLEDGE_TIMEOUT: Final = 10.0
"""Seconds that a stopping master waits for the agent to deal with the last deaths."""

ACKNOWLEDGE_TIMEOUT_FAST: Final = 1.0
"""The same when somebody hurries."""

STALLED_AFTER: Final = 3.0
"""Seconds between two looks after which the master itself was held up, and may not call others silent."""

_SIGNALS: Final = (*STOP_SIGNALS, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1)


class NodePhase(StrEnum):
    """How the node is."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"


class Master:
    """A node's supervisor."""

    def __init__(self, plan: Plan, sockets: ListeningSockets, systemd: SystemdNotifier) -> None:
        self._plan = plan
        self._sockets = sockets
        self._systemd = systemd
        self._console = Console(plan.node, plan.log_format)
        self._loop = SelectorLoop(self._console.report_fault)
        self._table = ProcessTable(plan)
        self._exit_reports = ExitReports(self._table)
        self._alerts = AlertForwarder(self._table, self._console)
        self._logs = LogReopener(plan.log_file, self._table, self._console)
        self._process_manager = ProcessManager(
            plan, self._table, self._loop, self._alerts, self._exit_reports, self._logs, sockets, self._on_failure
        )
        self._router = MessageRouter(partial(build_directory, self._table))
        self._process_manager.on_message |= {"reload": self._on_reload, **routing_handlers(self._router)}
        self._reloads = ReloadCoordinator(plan, self._table, self._loop, self._process_manager, sockets, self._alerts)
        self._has_terminal = has_controlling_tty()
        self._last_round_at = time.monotonic()
        self._started_at = datetime.now(UTC)
        self._phase = NodePhase.STARTING
        self._failed = False
        self._fast = False
        self._finished = False
        self._signals = 0
        self._acknowledge_by: float | None = None
        self._commands: dict[str, Callable[[Mapping[str, Any]], Mapping[str, object] | DeferredAnswer]] = {
            "status": self._status,
            "stop": self._stop_command,
            "call-agent": self._call_agent,
            "reload": self._reload_command,
            "scale": self._scale_command,
            "reopen-logs": self._reopen_logs_command,
            "modules": lambda _: {"modules": sorted(sys.modules)},
        }

    def run(self) -> int:
        """Keep the node up until it is stopped; return the master's exit status."""
        become_subreaper()
        self._loop.handle_signals(_SIGNALS, self._on_signals)
        folder = Path(self._plan.run_directory)
        control = ControlServer(folder, self._loop, self._handle_command, time.monotonic, self._console.log)
        while not self._finished:
            self._loop.run_guarded(self._advance)
            self._loop.run_guarded(lambda: control.advance(time.monotonic()))
            self._loop.run_guarded(lambda: self._router.advance(time.monotonic()))
            self._loop.wait(self._until_next_round(control.due_at))
        orphans.kill_all_orphans()
        self._reloads.kill_planner()
        control.close()
        return exit_codes.BOOT_FAILED if self._failed else exit_codes.OK

    # ---------------------------------------------------------------- the round

    def _advance(self) -> None:
        """Do all that is due now. It may be called at any time, and again."""
        now = time.monotonic()
        for process in self._table.processes():
            process.kill_if_overdue(now)
        self._kill_silent_processes(now)
        if self._phase is NodePhase.STARTING:
            self._continue_start(now)
        if self._phase is NodePhase.RUNNING:
            self._reloads.advance(now)
        if self._phase is NodePhase.STOPPING:
            self._continue_stop(now)
        self._table.drop_unwanted()
        for entry in self._table.entries:
            if self._is_due(entry, now) and self._may_start(entry):
                self._process_manager.start(entry, now)
        orphans.reap(self._known_pids())
        self._systemd.notify(self._condition(now), now)

    def _is_due(self, entry: SlotEntry, now: float) -> bool:
        """Whether a slot is to get a process now: it waits for one, or has just been added."""
        is_new = entry.slot.state is SlotState.STOPPED and self._phase is NodePhase.RUNNING
        return entry.wanted and not entry.must_wait_for_exit and (is_new or entry.slot.is_due(now))

    def _kill_silent_processes(self, now: float) -> None:
        was_stalled = now - self._last_round_at > STALLED_AFTER
        self._last_round_at = now
        for entry in self._table.entries:
            for process in entry.processes:
                if was_stalled:
                    process.record_contact(now)
                before = process.is_silent
                process.kill_if_silent(now)
                if process.is_silent and not before:
                    self._alerts.raise_alert(entry, process, "silent", f"{process} is silent, and is killed")

    def _known_pids(self) -> set[int]:
        return self._table.pids() | self._reloads.pids()

    def _condition(self, now: float) -> NodeCondition:
        """How the node is, for the service manager."""
        reloading = self._phase is NodePhase.RUNNING and self._reloads.is_active
        text = format_status_line(self._phase, self._table.entries, reloading=reloading)
        return NodeCondition(self._phase, text, reloading, is_healthy(self._table.agent, now))

    def _until_next_round(self, control_due_at: float) -> float:
        if self._finished:
            return 0.0
        now = time.monotonic()
        others = filter(None, (self._acknowledge_by, self._systemd.due_at))
        times = [*self._table.deadlines(), *others, self._router.due_at, control_due_at]
        return min([self._plan.shutdown_interval, *(max(0.0, at - now) for at in times)])

    def _may_start(self, entry: SlotEntry) -> bool:
        """A node that stops replaces nobody but its agent, who has deaths to deal with."""
        return self._phase is not NodePhase.STOPPING or (entry.is_agent and not self._failed)

    # ---------------------------------------------------------------- start

    def _continue_start(self, now: float) -> None:
        """Agent first, then all others, then tell everybody."""
        agent = self._table.agent
        if agent and agent.slot.state is SlotState.STOPPED:
            self._process_manager.start(agent, now)
        if agent and agent.slot.state is not SlotState.RUNNING:
            return
        for entry in self._table.others:
            if entry.slot.state is SlotState.STOPPED and self._phase is NodePhase.STARTING:
                self._process_manager.start(entry, now)
        if all(entry.slot.state in (SlotState.RUNNING, SlotState.EXITED) for entry in self._table.others):
            self._phase = NodePhase.RUNNING
            self._console.log(self._format_ready_message())
            self._process_manager.announce_node_ready()
            self._router.open(now)

    def _format_ready_message(self) -> str:
        ready = f"ready: {len(self._table.pids())} processes"
        addresses = self._sockets.addresses()
        return f"{ready}, listening on {', '.join(addresses)}" if addresses else ready

    def _on_failure(self, text: str) -> None:
        """A failure before the node is ready ends it; after that nothing does but its user."""
        if self._phase is not NodePhase.STARTING:
            self._console.log(text, level="error")
            return
        self._failed = True
        self._console.log(f"{CANNOT_START}{text}", level="error")
        self._stop()

    # ---------------------------------------------------------------- stop

    def _stop(self, *, fast: bool = False) -> None:
        """Stop all but the agent, whose turn comes when they are gone."""
        if self._phase is NodePhase.STOPPING and (self._fast or not fast):
            return
        self._console.log("stopping, with no grace" if fast else "stopping")
        self._phase = NodePhase.STOPPING
        self._fast = fast
        self._router.close()
        self._sockets.close()  # who comes now finds nobody, which is better than to wait for nobody
        self._reloads.abandon_all("the node stops")
        for entry in self._table.others:
            self._process_manager.stop(entry, fast=fast)
        agent = self._table.agent
        if agent and agent.slot.state is SlotState.DRAINING:
            self._process_manager.stop(agent, fast=fast)
        if self._acknowledge_by is not None:
            self._acknowledge_by = time.monotonic() + ACKNOWLEDGE_TIMEOUT_FAST

    def _continue_stop(self, now: float) -> None:
        """When the others have gone and the agent has dealt with their deaths, stop it too."""
        if any(entry.processes for entry in self._table.others):
            return
        agent = self._table.agent
        if agent and agent.slot.state not in (SlotState.DRAINING, SlotState.STOPPED):
            if self._must_wait_for(agent, now):
                return
            self._process_manager.stop(agent, fast=self._fast)
        self._acknowledge_by = None
        self._finished = not any(self._table.processes())

    def _must_wait_for(self, agent: SlotEntry, now: float) -> bool:
        """Whether there are deaths that the agent, or its replacement, may still acknowledge."""
        if self._acknowledge_by is None:
            self._acknowledge_by = now + (ACKNOWLEDGE_TIMEOUT_FAST if self._fast else ACKNOWLEDGE_TIMEOUT)
        can_answer = not self._failed or (agent.process is not None and agent.process.ready)
        return bool(self._exit_reports.unacknowledged) and can_answer and now < self._acknowledge_by

    # ---------------------------------------------------------------- signals and commands

    def _on_signals(self, numbers: list[int]) -> None:
        for number in numbers:
            match number:
                case signal.SIGCHLD:
                    pass  # it only wakes the loop, for orphans: children have their pidfds
                case signal.SIGHUP if not self._has_terminal or has_controlling_tty():
                    self._reloads.submit(None, config_only=False)
                case signal.SIGUSR1:
                    self._logs.reopen()
                case _:
                    self._signals += 1
                    self._stop(fast=self._signals > 1)

    def _handle_command(self, command: Mapping[str, Any]) -> Mapping[str, object] | DeferredAnswer:
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
            "run_directory": self._plan.run_directory,
            "log_file": self._plan.log_file,
            "background": self._plan.background,
            "slots": [entry.to_json(now) for entry in self._table.entries],
            "reloads": self._reloads.to_json(),
            "sockets": self._sockets.to_json(),
        }

    def _on_reload(self, _: SlotEntry, __: ChildProcess, message: Mapping[str, Any]) -> None:
        """A watcher has seen that something changed."""
        if self._phase is not NodePhase.STOPPING:
            self._reloads.submit(message.get("kinds"), config_only=bool(message.get("config_only")))

    def _reload_command(self, command: Mapping[str, Any]) -> Mapping[str, object]:
        kinds = command.get("kinds")
        if self._phase is not NodePhase.RUNNING:
            return {"error": f"the node is {self._phase}; only one that runs can be reloaded"}
        if kinds is not None and not (isinstance(kinds, list) and kinds and all(isinstance(one, str) for one in kinds)):
            return {"error": "kinds must be a list of names, or null for all of them"}
        return {"number": self._reloads.submit(kinds, config_only=bool(command.get("config_only"))).number}

    def _scale_command(self, command: Mapping[str, Any]) -> Mapping[str, object]:
        name, processes = command.get("kind"), command.get("processes")
        kind = self._table.kinds.get(str(name))
        if self._phase is not NodePhase.RUNNING:
            return {"error": f"the node is {self._phase}; only one that runs can be scaled"}
        if kind is None or kind.role in SINGLETON_ROLES:
            known = [one.name for one in self._table.kinds.values() if one.role not in SINGLETON_ROLES]
            return {"error": f"there is no kind {name!r} to scale; only {', '.join(known) or 'none'}"}
        if not isinstance(processes, int) or isinstance(processes, bool) or not 0 <= processes <= MAX_PROCESSES:
            return {"error": f"processes must be a number from 0 to {MAX_PROCESSES}"}
        before = len(self._table.of_kind(kind.name))
        for entry in self._table.scale(kind, processes):
            if entry.slot.state is not SlotState.DRAINING:
                self._process_manager.stop(entry, fast=False, reason=stop_reason(SCALED, "scaled down"))
        self._console.log(f"{kind.name} is scaled from {before} to {processes} processes")
        return {"kind": kind.name, "before": before, "processes": processes}

    def _call_agent(self, command: Mapping[str, Any]) -> DeferredAnswer:
        answer = DeferredAnswer()
        request = (command.get("action"), command.get("data"), command.get("timeout", DEFAULT_REPLY_TIMEOUT))
        self._router.call_agent(*request, answer.resolve, time.monotonic())
        return answer

    def _stop_command(self, command: Mapping[str, Any]) -> Mapping[str, object]:
        self._stop(fast=bool(command.get("fast")))
        return {"pid": os.getpid()}

    def _reopen_logs_command(self, _: Mapping[str, Any]) -> Mapping[str, object]:
        problem = self._logs.reopen()
        return {"error": problem} if problem else {"log_file": self._plan.log_file}


def main(fd: int) -> int:
    """Be the master of the plan on a descriptor; return the exit status."""
    faulthandler.enable()
    systemd = SystemdNotifier.from_environment(os.environ, os.getpid())
    plan = None
    try:
        with os.fdopen(fd, "rb") as file:
            plan = Plan.parse(json.load(file))
        inherited = SystemdSockets(os.environ, os.getpid())
        raise_descriptor_limit()
        with NodeLock(Path(plan.run_directory)):
            sockets = ListeningSockets(inherited)
            sockets.bind(plan.sockets)
            run = _run if plan.log_file is None else _run_with_log_file
            return run(plan, sockets, systemd)
    except AlreadyRunning as error:
        _report_start_error(plan, str(error))
        return exit_codes.ALREADY_RUNNING
    except (PlanError, ListenError, UnsafeRunDirectory, ValueError, OSError) as error:
        _report_start_error(plan, f"{CANNOT_START}{error}")
        return exit_codes.REFUSED


def _report_start_error(plan: Plan | None, text: str) -> None:
    """Say why there will be no node: to the one who starts it, in the form of its log."""
    if plan is not None and plan.log_format == "json":
        Console(plan.node, plan.log_format).log(text, level="error")
    else:
        sys.stderr.write(f"peerd: {text}\n")


def _run(plan: Plan, sockets: ListeningSockets, systemd: SystemdNotifier) -> int:
    return Master(plan, sockets, systemd).run()


def _run_with_log_file(plan: Plan, sockets: ListeningSockets, systemd: SystemdNotifier) -> int:
    """Write to the log; whoever has started the node is told where to look if it cannot start."""
    assert plan.log_file is not None
    with os.fdopen(os.dup(sys.stderr.fileno()), "w") as starter:
        logfile.redirect_output(plan.log_file)
        status = _run(plan, sockets, systemd)
        if status != exit_codes.OK:
            with contextlib.suppress(OSError):  # it has gone
                starter.write(f"peerd: cannot start; {plan.log_file} says why\n")
                starter.flush()
    return status


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
