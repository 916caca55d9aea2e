"""A node of stub services: a real master with real children, and a check that no process is left behind."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from peerd.supervision import control_client
from peerd.testing import eventually as eventually_within

HERE = Path(__file__).parent
WITHIN = 120.0
AGENT: dict[str, Any] = {"name": "agent", "role": "agent"}
MANAGER: dict[str, Any] = {"name": "manager", "role": "manager"}
WORKER: dict[str, Any] = {"name": "video-1"}
DEFAULTS = {"backoff_initial": 0.1, "release_time": 1.0}
PLANNED = {
    "entry", "command", "grace", "release_time", "boot_timeout", "environment", "silent_after", "hang_after", "drains",
    "drain_timeout", "sockets", "backoff_initial", "backoff_maximum", "stable_after",
}  # fmt: skip
"""Options of a kind; all others are the stub's."""
eventually = functools.partial(eventually_within, timeout=WITHIN)


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def marked_processes(variable: str) -> list[int]:
    """The living processes that have a variable, also orphaned ones."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if variable.encode() in (folder / "environ").read_bytes() and is_alive(int(folder.name)):
                found.append(int(folder.name))
    return found


def kill_processes(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class StubNode:
    """A master in a process of its own."""

    PREFIX: tuple[str, ...] = ()
    """The beginning of its command line."""

    def __init__(self, folder: Path, *slots: dict[str, Any], **plan: Any) -> None:
        self.folder = folder
        self.notes_file = folder / "notes"
        self.notes_file.touch()
        self.run_directory = folder / "run"
        self.mark = f"PEERD_TEST={uuid.uuid4()}"
        self.plan = {
            "node": "stubs",
            "run_directory": str(self.run_directory),
            "project_directory": str(HERE),
            "kinds": self._kinds(slots),
            **plan,
        }
        self.errors = folder / "stderr"
        self.before = ""
        """Code that runs in the process that becomes the master."""
        self.pass_fds: tuple[int, ...] = ()
        self.master: subprocess.Popen[bytes] | None = None

    def _kinds(self, slots: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Options of stub services are given per slot; those of a kind are merged from all of its slots."""
        kinds: dict[str, dict[str, Any]] = {}
        for slot in slots:
            name, role = slot["name"], slot.get("role", "worker")
            kind_name = name if role in ("agent", "manager") else name.rpartition("-")[0]
            kind = kinds.setdefault(kind_name, {"name": kind_name, "role": role, "processes": 0, **DEFAULTS})
            kind["processes"] += 1
            kind |= {key: slot[key] for key in PLANNED & slot.keys()}
            if role != "command":
                kind.setdefault("entry", "stub_services:stub")
                payload = kind.setdefault("payload", {"notes": str(self.notes_file), "slots": {}})
                payload["slots"][name] = {key: slot[key] for key in slot.keys() - PLANNED - {"name", "role"}}
        return list(kinds.values())

    def start(self) -> StubNode:
        self.master = self.start_another()
        return self

    def start_another(self, errors: Path | None = None) -> subprocess.Popen[bytes]:
        code = f"{self.before}\nimport sys, json; from peerd.supervision.daemonize import exec_master\n"
        code += "exec_master(json.loads(sys.argv[1]))"
        name, _, value = self.mark.partition("=")
        with (errors or self.errors).open("ab") as stderr:
            return subprocess.Popen(
                [*self.PREFIX, sys.executable, "-c", code, json.dumps(self.plan)],
                stderr=stderr,
                stdout=subprocess.DEVNULL,
                env={**os.environ, name: value},
                pass_fds=self.pass_fds,
            )

    def up(self) -> StubNode:
        """Start it and wait until it is ready."""
        self.start()
        eventually(lambda: self.state() == "running", message="the node is ready")
        return self

    @property
    def pid(self) -> int:
        assert self.master is not None
        return self.master.pid

    def status(self) -> dict[str, Any]:
        return control_client.status(self.run_directory)

    def state(self) -> str | None:
        assert self.master is not None
        if self.master.poll() is not None:
            pytest.fail(f"the master has ended: {self.log_text()}")  # not an assertion, which `eventually` would repeat
        with contextlib.suppress(control_client.MasterNotRunning):
            return str(self.status()["state"])
        return None

    def slot(self, name: str) -> dict[str, Any]:
        return next(slot for slot in self.status()["slots"] if slot["name"] == name)

    def notes(self, kind: str | None = None, slot: str | None = None) -> list[dict[str, Any]]:
        lines = self.notes_file.read_text().rpartition("\n")[0].splitlines()  # the last one may be being written
        notes = [json.loads(line) for line in lines]
        return [one for one in notes if kind in (None, one["kind"]) and slot in (None, one["slot"])]

    def received(self, kind: str, slot: str | None = None) -> list[dict[str, Any]]:
        return [f["message"] for f in self.notes("received", slot) if f["message"]["type"] == kind]

    def log_text(self) -> str:
        return self.errors.read_text()

    def processes(self) -> list[int]:
        return marked_processes(self.mark)

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def call_messenger(self, slot: str, call: str, *args: Any, **more: Any) -> dict[str, Any]:
        """Have a slot's process call a method of its messenger, through the agent; return the result or error."""
        data = {"pid": self.slot(slot)["pid"], "call": call, "args": args, "more": more}
        answer: dict[str, Any] = control_client.call_agent(self.run_directory, "relay", data, timeout=25.0)
        return answer

    def kill(self, slot: str) -> int:
        """Kill a slot's process; return what its process id was."""
        pid = int(self.slot(slot)["pid"])
        os.kill(pid, signal.SIGKILL)
        return pid

    def wait(self, within: float = WITHIN) -> int:
        """Return the exit status of the master."""
        assert self.master is not None
        return self.master.wait(within)

    def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return self.wait()

    def clean_up(self) -> list[int]:
        """Stop it, by force if necessary; return the processes that a stop has left behind."""
        assert self.master is not None
        if self.master.poll() is None:
            self.signal(signal.SIGTERM)
            try:
                self.master.wait(15)
            except subprocess.TimeoutExpired:
                self.master.kill()
                self.master.wait()
        left = self.processes()
        kill_processes(left)
        return left
