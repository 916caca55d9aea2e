"""The master: the supervisor of a node, and the one process that must not fail.

It starts the node's processes in order, keeps each slot filled, reports exits to the agent, replaces processes on
request, and stops the node in order. It runs no user code, opens no database, and imports only the standard library and
its own few modules. One thread, one loop. This module decides when; transitions of slots are in `slot`, work on
processes in `process_manager`, reloads in `rolling_restart`.

    python -P -m peerd.supervision.master FD        the plan, JSON, is read from this descriptor
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final

from peerd.runtime.frames import DEFAULT_REPLY_TIMEOUT
from peerd.runtime.observability import log_file
from peerd.runtime.os_processes import STOP_SIGNALS, become_subreaper
from peerd.runtime.process import exit_codes
from peerd.supervision import exits
from peerd.supervision.child_process import ChildProcess
from peerd.supervision.control_server import AlreadyRunning, ControlServer, SendAnswer, UnsafeRunDirectory, node_lock
from peerd.supervision.envelope import as_recipient, build_directory
from peerd.supervision.event_loop import SelectorLoop
from peerd.supervision.listening_sockets import ListenError, ListeningSockets, SystemdSockets
from peerd.supervision.message_router import MessageRouter
from peerd.supervision.plan import Plan, PlanError
from peerd.supervision.process_manager import ProcessManager
from peerd.supervision.process_table import ProcessTable, SlotEntry
from peerd.supervision.reporting import CANNOT_START, AgentReports, Console
from peerd.supervision.rolling_restart import ReloadCoordinator
from peerd.supervision.sd_notify import SystemdNotifier, build_condition
from peerd.supervision.slot import SlotState

ACKNOWLEDGE_TIMEOUT: Final = 10.0
"""Seconds that a stopping master waits until the agent has acknowledged the last exits."""

ACKNOWLEDGE_TIMEOUT_FAST: Final = 1.0
"""Seconds that it waits for this in a fast stop."""

STALLED_AFTER: Final = 3.0
"""Seconds between two rounds after which the master itself was delayed, and silence of processes does not count."""

# hard limits of containers can be a billion, and some programs iterate over all numbers up to theirs when they start
TARGET_SOFT_LIMIT: Final = 65_536
"""Descriptors: enough for tens of thousands of connections per web process."""
_SIGNALS: Final = (*STOP_SIGNALS, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1)


class NodePhase(StrEnum):
    """Phase of the node."""

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
        self._reports = AgentReports(self._table, self._console)
        self._process_manager = ProcessManager(
            plan, self._table, self._loop, self._console, self._reports, sockets, self._on_failure
        )
        self._router = MessageRouter(partial(build_directory, self._table))
        self._process_manager.on_message |= {
            "reload": self._on_reload,
            "message": lambda _, one, message: self._router.route(as_recipient(one), message, time.monotonic()),
            "reply": lambda _, one, message: self._router.route_reply(as_recipient(one), message),
            "taken": lambda _, one, message: self._router.acknowledge(as_recipient(one), message),
        }
        self._reloads = ReloadCoordinator(self._process_manager)
        self._has_terminal = has_controlling_tty()
        self._last_round_at = time.monotonic()
        self._started_at = datetime.now(UTC)
        self._phase = NodePhase.STARTING
        self._failed = False
        self._fast = False
        self._finished = False
        self._signals = 0
        self._acknowledge_by: float | None = None
        self._commands: dict[str, Callable[[Mapping[str, Any]], Mapping[str, object]]] = {
            "status": self._status,
            "stop": self._stop_command,
            "reload": self._reload_command,
            "scale": lambda command: self._process_manager.scale(command.get("kind"), command.get("processes")),
            "reopen-logs": lambda _: self._process_manager.reopen_logs(),
            "modules": lambda _: {"modules": sorted(sys.modules)},
        }

    def run(self) -> int:
        """Run the node until it is stopped; return the master's exit status."""
        become_subreaper()
        self._loop.handle_signals(_SIGNALS, self._on_signals)
        control = ControlServer(Path(self._plan.run_directory), self._loop, self._handle_command, self._console)
        while not self._finished:
            self._loop.run_guarded(self._advance)
            self._loop.run_guarded(control.advance)
            self._loop.run_guarded(lambda: self._router.advance(time.monotonic()))
            self._loop.wait(self._until_next_round(control.due_at))
        exits.kill_all_orphans()
        if self._reloads.planner:
            self._reloads.planner.kill()
        control.close()
        return exit_codes.BOOT_FAILED if self._failed else exit_codes.OK

    # ---------------------------------------------------------------- the round

    def _advance(self) -> None:
        """Do everything that is due. Idempotent."""
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
            if self._is_due(entry, now):
                self._process_manager.start(entry, now)
        planner = self._reloads.planner
        exits.reap(self._table.pids() | ({planner.pid} if planner else set()))
        reloading = self._phase is NodePhase.RUNNING and self._reloads.is_active
        self._systemd.notify(build_condition(self._phase, self._table, now, reloading=reloading), now)

    def _is_due(self, entry: SlotEntry, now: float) -> bool:
        """Whether a slot must get a process now: it waits for one, or has just been added.

        A stopping node replaces only its agent, which still has to process exits; the former agent must have ended.
        """
        if self._phase is NodePhase.STOPPING and (self._failed or not entry.is_agent):
            return False
        is_new = entry.slot.state is SlotState.STOPPED and self._phase is NodePhase.RUNNING
        former_agent_runs = entry.is_agent and bool(entry.leaving)
        return entry.wanted and not former_agent_runs and (is_new or entry.slot.is_due(now))

    def _kill_silent_processes(self, now: float) -> None:
        was_stalled = now - self._last_round_at > STALLED_AFTER
        self._last_round_at = now
        for entry in self._table.entries:
            for process in entry.processes:
                if was_stalled:
                    process.record_contact(now)
                if process.kill_if_silent(now):
                    self._reports.raise_alert(entry, process, "silent", f"{process} is silent and is killed")

    def _until_next_round(self, control_due_at: float) -> float:
        if self._finished:
            return 0.0
        now = time.monotonic()
        optional = filter(None, (self._acknowledge_by, self._systemd.due_at))
        times = [*self._table.deadlines(), *optional, self._router.due_at, control_due_at]
        return min([self._plan.shutdown_interval, *(max(0.0, at - now) for at in times)])

    # ---------------------------------------------------------------- start

    def _continue_start(self, now: float) -> None:
        """Start the agent, then all others, then report that the node is ready."""
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
            addresses = ", ".join(self._sockets.addresses())
            listening = f", listening on {addresses}" if addresses else ""
            self._console.log(f"ready: {len(self._table.pids())} processes{listening}")
            self._process_manager.announce_node_ready()
            self._router.open(now)

    def _on_failure(self, text: str) -> None:
        """End the node at a failure before it is ready; later ones are only logged."""
        if self._phase is not NodePhase.STARTING:
            self._console.log(text, level="error")
            return
        self._failed = True
        self._console.log(f"{CANNOT_START}{text}", level="error")
        self._stop()

    # ---------------------------------------------------------------- stop

    def _stop(self, *, fast: bool = False) -> None:
        """Stop all processes but the agent, which is stopped after they have ended."""
        if self._phase is NodePhase.STOPPING and (self._fast or not fast):
            return
        self._console.log("stopping without grace" if fast else "stopping")
        self._phase = NodePhase.STOPPING
        self._fast = fast
        self._router.close()
        self._sockets.close()  # new connections are refused, instead of waiting in a queue that nothing accepts from
        self._reloads.abandon_all("the node is stopping")
        for entry in self._table.others:
            self._process_manager.stop(entry, fast=fast)
        agent = self._table.agent
        if agent and agent.slot.state is SlotState.DRAINING:
            self._process_manager.stop(agent, fast=fast)
        if self._acknowledge_by is not None:
            self._acknowledge_by = time.monotonic() + ACKNOWLEDGE_TIMEOUT_FAST

    def _continue_stop(self, now: float) -> None:
        """Stop the agent when the others have ended and it has acknowledged their exits."""
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
        """Whether the agent, or its replacement, may still acknowledge exits."""
        if self._acknowledge_by is None:
            self._acknowledge_by = now + (ACKNOWLEDGE_TIMEOUT_FAST if self._fast else ACKNOWLEDGE_TIMEOUT)
        can_answer = not self._failed or (agent.process is not None and agent.process.ready)
        return self._reports.has_unacknowledged_exits and can_answer and now < self._acknowledge_by

    # ---------------------------------------------------------------- signals and commands

    def _on_signals(self, numbers: list[int]) -> None:
        for number in numbers:
            match number:
                case signal.SIGCHLD:
                    pass  # it only wakes the loop to reap orphans; children have pidfds
                case signal.SIGHUP if not self._has_terminal or has_controlling_tty():
                    self._reloads.submit(None, config_only=False)
                case signal.SIGUSR1:
                    self._process_manager.reopen_logs()
                case _:
                    self._signals += 1
                    self._stop(fast=self._signals > 1)

    def _handle_command(self, command: Mapping[str, Any], answer: SendAnswer) -> None:
        """Call `answer` with the answer to a command, once, now or later."""
        name = command.get("command")
        if name == "call-agent":
            timeout = command.get("timeout", DEFAULT_REPLY_TIMEOUT)
            self._router.call_agent(command.get("action"), command.get("data"), timeout, answer, time.monotonic())
        elif name in {"reload", "scale"} and self._phase is not NodePhase.RUNNING:
            answer({"error": f"cannot {name}: the node is {self._phase}, not running"})
        elif handler := self._commands.get(str(name)):
            answer(handler(command))
        else:
            answer({"error": f"unknown command {name!r}: one of {', '.join([*self._commands, 'call-agent'])}"})

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
        """The watcher has detected a change."""
        if self._phase is not NodePhase.STOPPING:
            self._reloads.submit(message.get("kinds"), config_only=bool(message.get("config_only")))

    def _reload_command(self, command: Mapping[str, Any]) -> Mapping[str, object]:
        kinds = command.get("kinds")
        if kinds is not None and not (isinstance(kinds, list) and kinds and all(isinstance(one, str) for one in kinds)):
            return {"error": "kinds must be a list of names, or null for all of them"}
        return {"number": self._reloads.submit(kinds, config_only=bool(command.get("config_only"))).number}

    def _stop_command(self, command: Mapping[str, Any]) -> Mapping[str, object]:
        self._stop(fast=bool(command.get("fast")))
        return {"pid": os.getpid()}


def main(fd: int) -> int:
    faulthandler.enable()
    systemd = SystemdNotifier.from_environment(os.environ, os.getpid())
    plan = None
    try:
        with os.fdopen(fd, "rb") as file:
            plan = Plan.parse(json.load(file))
        inherited = SystemdSockets(os.environ, os.getpid())
        raise_descriptor_limit()
        with node_lock(Path(plan.run_directory)):
            sockets = ListeningSockets(inherited)
            sockets.bind(plan.sockets)
            return _run(plan, sockets, systemd)
    except AlreadyRunning as error:
        _report_start_error(plan, str(error))
        return exit_codes.ALREADY_RUNNING
    except (PlanError, ListenError, UnsafeRunDirectory, ValueError, OSError) as error:
        _report_start_error(plan, f"{CANNOT_START}{error}")
        return exit_codes.REFUSED


def _report_start_error(plan: Plan | None, text: str) -> None:
    if plan is not None and plan.log_format == "json":
        Console(plan.node, plan.log_format).log(text, level="error")
    else:
        sys.stderr.write(f"peerd: {text}\n")


def _run(plan: Plan, sockets: ListeningSockets, systemd: SystemdNotifier) -> int:
    if plan.log_file is None:
        return Master(plan, sockets, systemd).run()
    with os.fdopen(os.dup(sys.stderr.fileno()), "w") as original_stderr:
        log_file.redirect_output(plan.log_file)
        status = Master(plan, sockets, systemd).run()
        if status != exit_codes.OK:
            with contextlib.suppress(OSError):  # its reader has ended
                original_stderr.write(f"peerd: cannot start; {plan.log_file} says why\n")
                original_stderr.flush()
    return status


def has_controlling_tty() -> bool:
    """Whether this process was started at a terminal that still exists."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def raise_descriptor_limit() -> None:
    """Raise the soft limit of this process and its children to the hard one, at most to `TARGET_SOFT_LIMIT`.

    The soft limit is 1024 on most systems for the sake of programs that use select(2)
    (https://0pointer.net/blog/file-descriptor-limits.html); a web process would refuse its 1000th connection.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = TARGET_SOFT_LIMIT if hard == resource.RLIM_INFINITY else min(hard, TARGET_SOFT_LIMIT)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # it keeps the limit that it has
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
