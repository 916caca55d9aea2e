"""A cluster for a test: a project in a folder, and real nodes of it, started as `peerd up` starts them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

from peerd import Client, Job
from peerd.domain.lifecycle import IllegalTransition, Status, TaskEvent, sources
from peerd.domain.task import EACH_KEY, Task
from peerd.store.schema.migrate import migrate
from peerd.supervision import control_client
from peerd.testing import eventually
from tests.supervision.nodes import kill_processes, marked_processes
from tests.support.sigstop import stop_processes

HERE = Path(__file__).parent
WITHIN = 120.0
MAX_UPDATE = 3.0

NODE = {"heartbeat_every": "500ms", "grace": "10s", "shutdown_interval": "200ms"}
MANAGER = {"every": "200ms", "max_update": MAX_UPDATE, "inactive_after": "2s"}
WORKER = {"tasks": "jobs:jobs", "count": 4, "update": "500ms", "poll_every": "200ms", "delay_ratio": 0}


class ClusterNode:
    """One node: its configuration, its master's process, and the actions of a test on them."""

    def __init__(self, cluster: Cluster, name: str, sections: dict[str, dict[str, Any]]) -> None:
        self.cluster = cluster
        self.name = name
        self.run_directory = cluster.folder / f"run-{name}"
        number = len(cluster.nodes)
        self.config = cluster.folder / f"{name}-{number}.toml"
        self.log = cluster.folder / f"{name}-{number}.log"
        self.log.touch()
        self.environment: dict[str, str] = {}
        """Variables of its processes, in addition to those of the cluster."""
        self.master: subprocess.Popen[bytes] | None = None
        self.run_directory = Path(sections["node"].setdefault("run_directory", str(self.run_directory)))
        lines = []
        for section, values in sections.items():
            lines += [f"[{section}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
        self.config.write_text("\n".join(lines))

    def start(self) -> ClusterNode:
        """Start it, and do not wait."""
        with self.log.open("ab") as log:
            command = [*self.cluster.command, "up", "--config", str(self.config)]
            mark = {"CLUSTER_UNDER_TEST": self.cluster.mark}
            environment = os.environ | self.cluster.environment | self.environment | mark
            self.master = subprocess.Popen(
                command, cwd=self.cluster.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )
        return self

    def up(self) -> ClusterNode:
        """Start it and wait until it is ready."""
        self.start()
        self.wait_until_running()
        return self

    def wait_until_running(self) -> None:
        eventually(lambda: self.state() == "running", timeout=WITHIN, message=self.log_text)

    def kill(self, slot: str, number: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal to a slot's process; return its process id."""
        pid = self.pid(slot)
        os.kill(pid, number)
        return pid

    def kill_master(self) -> None:
        assert self.master is not None
        self.master.kill()
        self.master.wait(WITHIN)

    def kill_all(self) -> None:
        """Simulate a power cut: kill all processes of the node at once."""
        all_pids = self.all_pids()
        stop_processes(all_pids)  # first, so that none of them can react to the end of another
        kill_processes(all_pids)
        assert self.master is not None
        self.master.wait(WITHIN)

    def signal_master(self, number: signal.Signals) -> None:
        assert self.master is not None
        self.master.send_signal(number)

    def is_stopping(self) -> bool:
        assert self.master is not None
        return self.master.poll() is not None or f"peerd {self.name}: stopping" in self.log_text()

    def stop(self) -> int:
        """Stop it with SIGTERM; return the master's exit status."""
        self.signal_master(signal.SIGTERM)
        assert self.master is not None
        return self.master.wait(WITHIN)

    def repair(self) -> None:
        """Let it be as after its start: all of its processes run, and none is leaving."""
        if self.master is None or self.master.poll() is not None:
            self.start()
        eventually(self.is_complete, timeout=WITHIN, message=self.log_text)

    def scale(self, kind: str, processes: int) -> None:
        """Let so many processes of a kind run."""
        control_client.send_command(self.run_directory, {"command": "scale", "kind": kind, "processes": processes})
        eventually(lambda: len(self.slots(kind)) == processes and self.is_complete(), timeout=WITHIN)

    def reload(self, *kinds: str, config_only: bool = False) -> None:
        """Reload kinds, or all, and wait until that is over."""
        command = {"command": "reload", "kinds": list(kinds) or None, "config_only": config_only}
        number = control_client.send_command(self.run_directory, command)["number"]

        def is_over() -> bool:
            reloads = control_client.status(self.run_directory)["reloads"]
            [found] = [one for one in reloads if one["number"] == number]
            assert found["progress"] != "abandoned", found["error"]
            return bool(found["progress"] == "done")

        eventually(is_over, timeout=WITHIN, message=self.log_text)

    def peerd(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command on its machine."""
        return subprocess.run(
            [*self.cluster.command, *words, "--config", str(self.config)],
            cwd=self.cluster.folder,
            capture_output=True,
            text=True,
            timeout=WITHIN,
            check=False,
            env=os.environ | {"COLUMNS": "300"},
        )

    def all_pids(self) -> list[int]:
        """The master's process id, and those of all that descend from it."""
        assert self.master is not None
        return [self.master.pid, *(child.pid for child in psutil.Process(self.master.pid).children(recursive=True))]

    def state(self) -> str | None:
        assert self.master is not None
        assert self.master.poll() is None, f"the master has ended: {self.log_text()}"
        with contextlib.suppress(control_client.MasterNotRunning):
            return str(control_client.status(self.run_directory)["state"])
        return None

    def slots(self, kind: str | None = None) -> list[dict[str, Any]]:
        slots = control_client.status(self.run_directory)["slots"]
        return [slot for slot in slots if kind in (None, slot["kind"])]

    def slot(self, name: str) -> dict[str, Any]:
        return next(slot for slot in self.slots() if slot["name"] == name)

    def is_complete(self) -> bool:
        """Whether all of its processes run that shall, and none is leaving or booting beside another."""
        return self.state() == "running" and all(
            slot["state"] in ("RUNNING", "EXITED") and not slot["leaving"] and not slot["successor"]
            for slot in self.slots()
        )

    def port(self, bound: str = "") -> int:
        """The port that it listens on, of the address whose text has this part."""
        sockets = control_client.status(self.run_directory)["sockets"]
        [address] = [one["addresses"][0] for one in sockets if bound in one["bind"]]
        return int(address.rpartition(":")[2])

    def doorbell(self) -> dict[str, Any]:
        found: dict[str, Any] = control_client.call_agent(self.run_directory, "peerd.doorbell")
        return found

    def wait_for_doorbell(self) -> None:
        """Wait until it is known to work."""
        eventually(lambda: bool(self.doorbell()["works"]), timeout=WITHIN, message=lambda: str(self.doorbell()))

    def pid(self, slot: str) -> int:
        return int(self.slot(slot)["pid"])

    def replaced(self, slot: str, pid: int) -> Callable[[], bool]:
        """Whether another process than this one runs in the slot."""
        return lambda: (now := self.slot(slot))["state"] == "RUNNING" and now["pid"] not in (None, pid)

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")


class Cluster:
    """A database, a project in a folder, and the nodes that a test adds."""

    def __init__(
        self, folder: Path, url: str, environment: Mapping[str, str] | None = None, *, migrated: bool = True
    ) -> None:
        self.folder = folder
        self.url = url
        self.environment = dict(environment or {})
        self.command = [sys.executable, "-m", "peerd"]
        self.mark = uuid.uuid4().hex
        self.nodes: list[ClusterNode] = []
        self._events_file = folder / "events"
        self._events_file.touch()
        self._forgotten = 0
        self._gates = folder / "gates"
        self._gates.mkdir()
        self.options = {"events": str(self._events_file), "gates": str(self._gates)}
        self.copy("jobs.py", "scheduled.py")
        self.client = Client(url)
        if migrated:
            migrate(self.client.database)

    def copy(self, *files: str) -> None:
        for file in files:
            shutil.copy(HERE / file, self.folder / file)

    def node(self, name: str, **settings: Any) -> ClusterNode:
        """A node that is not started yet: settings of its worker `jobs`, or tables node=, workers= …, sections=."""
        database = {"url": self.url, **settings.pop("database", {})}
        node = {"name": name, **NODE, **settings.pop("node", {})}
        manager = {**MANAGER, **settings.pop("manager", {})}
        schedules = {f"schedules.{schedule}": given for schedule, given in settings.pop("schedules", {}).items()}
        sections = {"node": node, "database": database, "manager": manager, **schedules, **settings.pop("sections", {})}
        workers = settings.pop("workers", {"jobs": {**WORKER, **settings}})
        for kind, worker in workers.items():
            sections[f"workers.{kind}"] = worker
            if "tasks" in worker:
                sections[f"workers.{kind}.options"] = self.options
        self.nodes.append(ClusterNode(self, name, sections))
        return self.nodes[-1]

    def up(self, *names: str, **settings: Any) -> list[ClusterNode]:
        """Nodes of these names, all ready."""
        started = [self.node(name, **settings).start() for name in names]
        for one in started:
            one.wait_until_running()
        return started

    def worker(self, queue: str, /, code: str = "jobs", **settings: Any) -> dict[str, Any]:
        """A worker with the handlers of a module beside this one, for a queue of its own."""
        text = (HERE / f"{code}.py").read_text()
        (self.folder / f"{queue}.py").write_text(text.replace(f'Queue("{code}")', f'Queue("{queue}")'))
        return {**WORKER, "tasks": f"{queue}:{code}", **settings}

    def enqueue(self, name: str, /, queue: str = "jobs", **options: Any) -> Job:
        return self.client.enqueue(queue, name=name, **options)

    def freeze(self, pids: list[int]) -> None:
        """Stop processes with SIGSTOP while none writes: on SQLite a stopped writer would lock out all others."""

        def frozen() -> bool:
            stop_processes(pids)
            if self._is_writable():
                return True
            self.thaw(pids)
            return False

        if self.client.database.name == "sqlite":
            eventually(frozen, timeout=WITHIN)
        else:
            stop_processes(pids)

    def thaw(self, pids: list[int]) -> None:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

    def _is_writable(self) -> bool:
        file = self.client.database.url.database
        assert file is not None
        with contextlib.closing(sqlite3.connect(file, timeout=0.3, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
            connection.execute("ROLLBACK")
            return True

    def open(self, job: Job) -> None:
        (self._gates / str(job.id)).touch()

    def notes(self, job: Job | None = None, event: str | None = None, *, ever: bool = False) -> list[dict[str, Any]]:
        """Events since the last reset, or ever."""
        text = self._events_file.read_text()[0 if ever else self._forgotten :]
        lines = text.rpartition("\n")[0].splitlines()
        found = [json.loads(line) for line in lines]
        return [one for one in found if (job is None or one["task"] == job.id) and event in (None, one["event"])]

    def wait_for(self, job: Job, event: str, times: int = 1) -> dict[str, Any]:
        """Wait until this event has occurred so many times; return the latest."""
        found = eventually(lambda: self.notes(job, event)[times - 1 :], timeout=WITHIN, message=self.describe)
        return found[-1]

    def wait_until(self, job: Job, *statuses: Status, within: float = WITHIN) -> Task:
        def task_with_status() -> Task | None:
            task = self.client.tasks.get(job.id)
            return task if task.status in statuses else None

        found = eventually(task_with_status, timeout=within, message=self.describe)
        assert found is not None
        return found

    def done(self, job: Job, within: float = WITHIN) -> Task:
        return self.wait_until(job, Status.DONE, within=within)

    def outcomes(self, job: Job) -> list[tuple[str, str | None]]:
        return [(attempt.outcome, attempt.cause) for attempt in self.client.tasks.attempts(job.id)]

    def claiming_node(self, job: Job) -> ClusterNode:
        """The node that holds a task."""
        held = self.wait_until(job, Status.WORKING)
        names = {node.id: node.name for node in self.client.nodes.list()}
        return next(node for node in self.nodes if node.name == names[held.worker_node_id or 0])

    def describe(self) -> str:
        """Tasks, events and logs, for the message of a failed test."""
        tasks = "\n".join(str(task) for task in self.client.tasks.list(limit=20))
        return "\n".join([tasks, self._events_file.read_text(), *(node.log_text() for node in self.nodes)])

    def processes(self) -> list[int]:
        """All living processes that descend from these nodes, even if their parents have ended."""
        return marked_processes(f"CLUSTER_UNDER_TEST={self.mark}")

    def release_all(self) -> None:
        """End all tasks, and wait until none runs."""
        for status in sources(TaskEvent.CANCEL):
            for task in self.client.tasks.list(status=status, limit=1000):
                with contextlib.suppress(IllegalTransition):  # it has ended meanwhile
                    self.client.tasks.cancel(task.id)
        eventually(lambda: not self.client.tasks.list(status=Status.WORKING), timeout=WITHIN, message=self.describe)

    def reset(self) -> Cluster:
        """Between two tests that share the nodes: nothing to do, nothing in the way, all processes there."""
        for event in self.notes():
            (self._gates / str(event["task"])).touch()  # a thread ends in no other way
        self.release_all()
        for node in self.nodes:
            node.repair()
            self.client.nodes.undrain(node.name)
        for queue in self.client.queues.list():
            self.client.queues.resume(queue.name)
        for limit in self.client.limits.list():
            key = None if limit.key in ("", EACH_KEY) else limit.key
            self.client.limits.remove(limit.queue, key=key, each_key=limit.key == EACH_KEY)
        for file in self._gates.iterdir():
            file.unlink()
        self._forgotten = len(self._events_file.read_text())
        return self

    def clean_up(self) -> list[int]:
        """Stop all nodes, kill what is left, and return the processes that a stop has left behind."""
        running = [node for node in self.nodes if node.master and node.master.poll() is None]
        for number in (signal.SIGCONT, signal.SIGTERM):
            for node in running:
                node.signal_master(number)
        for node in running:  # a second signal before the first is handled is lost
            with contextlib.suppress(AssertionError):
                eventually(node.is_stopping, timeout=5)
            node.signal_master(signal.SIGTERM)
        for node in self.nodes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                if node.master:
                    node.master.wait(20)
        left = self.processes()
        kill_processes(left)
        for node in self.nodes:
            if node.master:
                node.master.wait(WITHIN)
        self.client.close()
        return left
