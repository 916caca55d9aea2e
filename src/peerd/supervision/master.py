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

from peerd.runtime.messages.addressing import REPLY_WITHIN
from peerd.runtime.observability import logfile
from peerd.runtime.process import exit_codes
from peerd.runtime.process.pdeathsig import adopt_orphans
from peerd.supervision.alert_forwarding import Alerts
from peerd.supervision.console import CANNOT_START, Console
from peerd.supervision.control.control_server import ControlServer, Later
from peerd.supervision.event_loop import Loop
from peerd.supervision.exits import orphans
from peerd.supervision.exits.exit_cause import SCALED, wish
from peerd.supervision.exits.exit_reports import Deaths
from peerd.supervision.host.descriptor_limit import raise_descriptor_limit
from peerd.supervision.host.launch import STOP_SIGNALS
from peerd.supervision.host.listening_sockets import Inherited, SocketError, Sockets
from peerd.supervision.host.log_reopening import Logs
from peerd.supervision.host.node_lock import AlreadyRunning, NodeLock, UnsafeRunDirectory
from peerd.supervision.host.sd_notify import Condition, Systemd
from peerd.supervision.host.tty import has_terminal
from peerd.supervision.messages.message_router import Post
from peerd.supervision.messages.process_directory import directory, hears
from peerd.supervision.plan import ALONE, MOST_PROCESSES, Plan, PlanError
from peerd.supervision.processes.child_process import Process
from peerd.supervision.processes.health import in_a_line, is_well
from peerd.supervision.processes.process_manager import Keeper
from peerd.supervision.processes.process_table import Member, Roster
from peerd.supervision.processes.slot import State
from peerd.supervision.reload.coordinator import Reloading

ACKNOWLEDGE_WITHIN: Final = 10.0
"""Seconds that a stopping master waits for the agent to deal with the last deaths."""

ACKNOWLEDGE_FAST: Final = 1.0
"""The same when somebody hurries."""

ASLEEP: Final = 3.0
"""Seconds between two looks after which the master itself was held up, and may not call others silent."""

_SIGNALS: Final = (*STOP_SIGNALS, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1)


class Phase(StrEnum):
    """How the node is."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"


class Master:
    """A node's supervisor."""

    def __init__(self, plan: Plan, sockets: Sockets, systemd: Systemd) -> None:
        self._plan = plan
        self._sockets = sockets
        self._systemd = systemd
        self._console = Console(plan.node, plan.log_format)
        self._loop = Loop(self._console.fault)
        self._roster = Roster(plan)
        self._deaths = Deaths(self._roster)
        self._alerts = Alerts(self._roster, self._console)
        self._logs = Logs(plan.log_file, self._roster, self._console)
        self._keeper = Keeper(
            plan, self._roster, self._loop, self._alerts, self._deaths, self._logs, sockets, self._on_failure
        )
        self._post = Post(partial(directory, self._roster))
        self._keeper.said |= {"reload": self._on_reload, **hears(self._post)}
        self._reloading = Reloading(plan, self._roster, self._loop, self._keeper, sockets, self._alerts)
        self._has_terminal = has_terminal()
        self._looked_at = time.monotonic()
        self._started_at = datetime.now(UTC)
        self._phase = Phase.STARTING
        self._failed = False
        self._fast = False
        self._finished = False
        self._signals = 0
        self._acknowledge_by: float | None = None
        self._commands: dict[str, Callable[[Mapping[str, Any]], Mapping[str, object] | Later]] = {
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
        adopt_orphans()
        self._loop.watch_signals(_SIGNALS, self._on_signals)
        folder = Path(self._plan.run_directory)
        control = ControlServer(folder, self._loop, self._answer, time.monotonic, self._console.say)
        while not self._finished:
            self._loop.guard(self._look)
            self._loop.guard(lambda: control.look(time.monotonic()))
            self._loop.guard(lambda: self._post.look(time.monotonic()))
            self._loop.wait(self._until_next_look(control.due_at))
        orphans.leave_none()
        self._reloading.end()
        control.close()
        return exit_codes.BOOT_FAILED if self._failed else exit_codes.OK

    # ---------------------------------------------------------------- the round

    def _look(self) -> None:
        """Do all that is due now. It may be called at any time, and again."""
        now = time.monotonic()
        for process in self._roster.processes():
            process.kill_if_out_of_time(now)
        self._look_for_silent_ones(now)
        if self._phase is Phase.STARTING:
            self._go_on_starting(now)
        if self._phase is Phase.RUNNING:
            self._reloading.look(now)
        if self._phase is Phase.STOPPING:
            self._go_on_stopping(now)
        self._roster.drop_the_unwanted()
        for member in self._roster.members:
            if self._is_due(member, now) and self._may_start(member):
                self._keeper.start(member, now)
        orphans.reap(self._known_pids())
        self._systemd.tell(self._condition(now), now)

    def _is_due(self, member: Member, now: float) -> bool:
        """Whether a slot is to get a process now: it waits for one, or has just been added."""
        is_new = member.slot.state is State.STOPPED and self._phase is Phase.RUNNING
        return member.wanted and not member.processes_in_the_way and (is_new or member.slot.is_due(now))

    def _look_for_silent_ones(self, now: float) -> None:
        was_asleep = now - self._looked_at > ASLEEP
        self._looked_at = now
        for member in self._roster.members:
            for process in member.processes:
                if was_asleep:
                    process.hear(now)
                before = process.is_silent
                process.kill_if_silent(now)
                if process.is_silent and not before:
                    self._alerts.about(member, process, "silent", f"{process} is silent, and is killed")

    def _known_pids(self) -> set[int]:
        return self._roster.pids() | self._reloading.pids()

    def _condition(self, now: float) -> Condition:
        """How the node is, for the service manager."""
        reloading = self._phase is Phase.RUNNING and self._reloading.goes_on
        text = in_a_line(self._phase, self._roster.members, reloading=reloading)
        return Condition(self._phase, text, reloading, is_well(self._roster.agent, now))

    def _until_next_look(self, control_due_at: float) -> float:
        if self._finished:
            return 0.0
        now = time.monotonic()
        others = filter(None, (self._acknowledge_by, self._systemd.due_at))
        times = [*self._roster.deadlines(), *others, self._post.due_at, control_due_at]
        return min([self._plan.shutdown_interval, *(max(0.0, at - now) for at in times)])

    def _may_start(self, member: Member) -> bool:
        """A node that stops replaces nobody but its agent, who has deaths to deal with."""
        return self._phase is not Phase.STOPPING or (member.is_agent and not self._failed)

    # ---------------------------------------------------------------- start

    def _go_on_starting(self, now: float) -> None:
        """Agent first, then all others, then tell everybody."""
        agent = self._roster.agent
        if agent and agent.slot.state is State.STOPPED:
            self._keeper.start(agent, now)
        if agent and agent.slot.state is not State.RUNNING:
            return
        for member in self._roster.others:
            if member.slot.state is State.STOPPED and self._phase is Phase.STARTING:
                self._keeper.start(member, now)
        if all(member.slot.state in (State.RUNNING, State.EXITED) for member in self._roster.others):
            self._phase = Phase.RUNNING
            self._console.say(self._that_it_is_ready())
            self._keeper.tell_that_the_node_is_ready()
            self._post.open(now)

    def _that_it_is_ready(self) -> str:
        ready = f"ready: {len(self._roster.pids())} processes"
        addresses = self._sockets.addresses()
        return f"{ready}, listening on {', '.join(addresses)}" if addresses else ready

    def _on_failure(self, text: str) -> None:
        """A failure before the node is ready ends it; after that nothing does but its user."""
        if self._phase is not Phase.STARTING:
            self._console.say(text, level="error")
            return
        self._failed = True
        self._console.say(f"{CANNOT_START}{text}", level="error")
        self._stop()

    # ---------------------------------------------------------------- stop

    def _stop(self, *, fast: bool = False) -> None:
        """Stop all but the agent, whose turn comes when they are gone."""
        if self._phase is Phase.STOPPING and (self._fast or not fast):
            return
        self._console.say("stopping, with no grace" if fast else "stopping")
        self._phase = Phase.STOPPING
        self._fast = fast
        self._post.close()
        self._sockets.close()  # who comes now finds nobody, which is better than to wait for nobody
        self._reloading.give_up("the node stops")
        for member in self._roster.others:
            self._keeper.stop(member, fast=fast)
        agent = self._roster.agent
        if agent and agent.slot.state is State.DRAINING:
            self._keeper.stop(agent, fast=fast)
        if self._acknowledge_by is not None:
            self._acknowledge_by = time.monotonic() + ACKNOWLEDGE_FAST

    def _go_on_stopping(self, now: float) -> None:
        """When the others have gone and the agent has dealt with their deaths, stop it too."""
        if any(member.processes for member in self._roster.others):
            return
        agent = self._roster.agent
        if agent and agent.slot.state not in (State.DRAINING, State.STOPPED):
            if self._waits_for(agent, now):
                return
            self._keeper.stop(agent, fast=self._fast)
        self._acknowledge_by = None
        self._finished = not any(self._roster.processes())

    def _waits_for(self, agent: Member, now: float) -> bool:
        """Whether there are deaths that the agent, or its replacement, may still acknowledge."""
        if self._acknowledge_by is None:
            self._acknowledge_by = now + (ACKNOWLEDGE_FAST if self._fast else ACKNOWLEDGE_WITHIN)
        can_answer = not self._failed or (agent.process is not None and agent.process.ready)
        return bool(self._deaths.unacknowledged) and can_answer and now < self._acknowledge_by

    # ---------------------------------------------------------------- signals and commands

    def _on_signals(self, numbers: list[int]) -> None:
        for number in numbers:
            match number:
                case signal.SIGCHLD:
                    pass  # it only wakes the loop, for orphans: children have their pidfds
                case signal.SIGHUP if not self._has_terminal or has_terminal():
                    self._reloading.ask(None, config_only=False)
                case signal.SIGUSR1:
                    self._logs.reopen()
                case _:
                    self._signals += 1
                    self._stop(fast=self._signals > 1)

    def _answer(self, command: Mapping[str, Any]) -> Mapping[str, object] | Later:
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
            "slots": [member.to_json(now) for member in self._roster.members],
            "reloads": self._reloading.to_json(),
            "sockets": self._sockets.to_json(),
        }

    def _on_reload(self, _: Member, __: Process, message: Mapping[str, Any]) -> None:
        """A watcher has seen that something changed."""
        if self._phase is not Phase.STOPPING:
            self._reloading.ask(message.get("kinds"), config_only=bool(message.get("config_only")))

    def _reload_command(self, command: Mapping[str, Any]) -> Mapping[str, object]:
        kinds = command.get("kinds")
        if self._phase is not Phase.RUNNING:
            return {"error": f"the node is {self._phase}; only one that runs can be reloaded"}
        if kinds is not None and not (isinstance(kinds, list) and kinds and all(isinstance(one, str) for one in kinds)):
            return {"error": "kinds must be a list of names, or null for all of them"}
        return {"number": self._reloading.ask(kinds, config_only=bool(command.get("config_only"))).number}

    def _scale_command(self, command: Mapping[str, Any]) -> Mapping[str, object]:
        name, processes = command.get("kind"), command.get("processes")
        kind = self._roster.kinds.get(str(name))
        if self._phase is not Phase.RUNNING:
            return {"error": f"the node is {self._phase}; only one that runs can be scaled"}
        if kind is None or kind.role in ALONE:
            known = [one.name for one in self._roster.kinds.values() if one.role not in ALONE]
            return {"error": f"there is no kind {name!r} to scale; only {', '.join(known) or 'none'}"}
        if not isinstance(processes, int) or isinstance(processes, bool) or not 0 <= processes <= MOST_PROCESSES:
            return {"error": f"processes must be a number from 0 to {MOST_PROCESSES}"}
        before = len(self._roster.of_kind(kind.name))
        for member in self._roster.scale(kind, processes):
            if member.slot.state is not State.DRAINING:
                self._keeper.stop(member, fast=False, because=wish(SCALED, "scaled down"))
        self._console.say(f"{kind.name} is scaled from {before} to {processes} processes")
        return {"kind": kind.name, "before": before, "processes": processes}

    def _call_agent(self, command: Mapping[str, Any]) -> Later:
        answer = Later()
        asked = (command.get("action"), command.get("data"), command.get("timeout", REPLY_WITHIN))
        self._post.call_agent(*asked, answer.give, time.monotonic())
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
    systemd = Systemd.from_environment(os.environ, os.getpid())
    plan = None
    try:
        with os.fdopen(fd, "rb") as file:
            plan = Plan.parse(json.load(file))
        inherited = Inherited(os.environ, os.getpid())
        raise_descriptor_limit()
        with NodeLock(Path(plan.run_directory)):
            sockets = Sockets(inherited)
            sockets.bind(plan.sockets)
            run = _run if plan.log_file is None else _run_with_a_log
            return run(plan, sockets, systemd)
    except AlreadyRunning as error:
        _complain(plan, str(error))
        return exit_codes.ALREADY_RUNNING
    except (PlanError, SocketError, UnsafeRunDirectory, ValueError, OSError) as error:
        _complain(plan, f"{CANNOT_START}{error}")
        return exit_codes.REFUSED


def _complain(plan: Plan | None, text: str) -> None:
    """Say why there will be no node: to the one who starts it, in the form of its log."""
    if plan is not None and plan.log_format == "json":
        Console(plan.node, plan.log_format).say(text, level="error")
    else:
        sys.stderr.write(f"peerd: {text}\n")


def _run(plan: Plan, sockets: Sockets, systemd: Systemd) -> int:
    return Master(plan, sockets, systemd).run()


def _run_with_a_log(plan: Plan, sockets: Sockets, systemd: Systemd) -> int:
    """Write to the log; whoever has started the node is told where to look if it cannot start."""
    assert plan.log_file is not None
    with os.fdopen(os.dup(sys.stderr.fileno()), "w") as starter:
        logfile.write_to(plan.log_file)
        status = _run(plan, sockets, systemd)
        if status != exit_codes.OK:
            with contextlib.suppress(OSError):  # it has gone
                starter.write(f"peerd: cannot start; {plan.log_file} says why\n")
                starter.flush()
    return status


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
