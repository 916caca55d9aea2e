"""The nodes under fire: real ones, each kept up as a machine's init keeps a service up, and how they are hit."""

from __future__ import annotations

import os
import random
import signal
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil

from peerd.supervision import control_client
from tests.cluster.cluster import Cluster, ClusterNode
from tests.faults import history, jobs, versions
from tests.faults.disk import open_file_system
from tests.faults.proxy import TcpProxy
from tests.support.server import PORTS

ROOT: Final = Path(__file__).parents[2]
NAMES: Final = ("one", "two", "three")
GATEWAY: Final = "tubes"
"""The kind of the gateway processes."""
ROLES: Final = ("master", "agent", "manager")
RESTART_AFTER: Final = 1.0
"""Seconds between the end of a master and its next start, as `RestartSec=1` of systemd."""
CHECK_EVERY: Final = 0.3
RECYCLE_AFTER: Final = 60
"""Tasks after which a process is recycled under load; some of those that it runs then take longer than its grace."""
STARTS_WITHIN: Final = 180.0


class NodeTiming(msgspec.Struct, frozen=True):
    """The periods of the nodes, in seconds; their relations are those of the defaults."""

    max_update: float = 8.0
    update: float = 1.0
    heartbeat_every: float = 1.0
    manager_every: float = 1.0
    poll_every: float = 0.5
    grace: float = 4.0


class ProcessHandle(msgspec.Struct, frozen=True):
    """A living process of a node, by a handle that outlives it: its process id may be given to another one."""

    node: str
    slot: str
    process: psutil.Process

    @property
    def pid(self) -> int:
        return int(self.process.pid)

    @property
    def name(self) -> str:
        return f"{self.node}/{self.slot}"

    @property
    def role(self) -> str:
        """`agent`, `manager`, `master`, `gateway`; whatever runs a user's code is a worker."""
        if self.slot.startswith(GATEWAY):
            return "gateway"
        return self.slot if self.slot in ROLES else "worker"

    def signal(self, number: signal.Signals) -> bool:
        """Send it a signal; whether it was there to receive it."""
        with suppress(psutil.NoSuchProcess):
            self.process.send_signal(number)
            return True
        return False


class RestartingNode:
    """A node that is started again whenever its master has ended, until `stop`."""

    def __init__(self, node: ClusterNode, proxy: TcpProxy | None) -> None:
        self.node = node
        self.proxy = proxy
        self.starts = 0
        self.is_ready = False
        """Whether its present master has logged that all its processes were ready once."""
        self.states: list[str] = []
        """Of its slots, by the latest status of its master."""
        self._running: dict[str, int] = {}
        self._stopping = threading.Event()
        self._restarter = threading.Thread(target=self._restart_loop, name=f"keeper-{node.name}", daemon=True)

    @property
    def name(self) -> str:
        return self.node.name

    def start(self) -> None:
        self._start()
        self._restarter.start()

    def stop(self) -> None:
        """Start it no more, and stop it gracefully."""
        self._stopping.set()
        self._restarter.join()
        assert self.node.master is not None
        if self.node.master.poll() is None:
            self.node.master.send_signal(signal.SIGTERM)

    def master(self) -> ProcessHandle | None:
        """Its master, if it lives."""
        master = self.node.master
        assert master is not None
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(master.pid)
            return ProcessHandle(self.name, "master", process) if master.poll() is None else None
        return None

    def children(self) -> list[ProcessHandle]:
        """The processes of its slots that have booted and run, by the latest status of its master."""
        master = self.master()
        if master is None:
            return []
        found = []
        for slot, pid in self._running.items():
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                if process.ppid() == master.pid:
                    found.append(ProcessHandle(self.name, slot, process))
        return found

    def booting(self) -> list[ProcessHandle]:
        """The processes of its slots that are not among `children` yet."""
        master = self.master()
        if master is None:
            return []
        named = [(slot_of(child, master.pid), child) for child in _children(master.process)]
        known = self._running.values()
        return [ProcessHandle(self.name, slot, child) for slot, child in named if slot and child.pid not in known]

    def all_processes(self) -> list[ProcessHandle]:
        """Its master, first, and all that descends from it, the programs of handlers too."""
        master = self.master()
        if master is None:
            return []
        return [
            master,
            *(ProcessHandle(self.name, "descendant", one) for one in _children(master.process, recursive=True)),
        ]

    # ------------------------------------------------------------ its keeper

    def _start(self) -> None:
        self.starts += 1
        self.node.start()

    def _restart_loop(self) -> None:
        while not self._stopping.wait(CHECK_EVERY):
            assert self.node.master is not None
            self._check_status()
            status = self.node.master.poll()
            if status is not None:
                history.record("master-ended", node=self.name, error=str(status))
                if not self._stopping.wait(RESTART_AFTER):
                    self._start()

    def _check_status(self) -> None:
        """Ask its master how it is; one that stands still is waited for."""
        try:
            status = control_client.status(self.node.run_directory)
        except (control_client.MasterNotRunning, OSError):
            self.is_ready, self._running, self.states = False, {}, []
            return
        self.is_ready = status["state"] == "running"
        self.states = [slot["state"] for slot in status["slots"]]
        self._running = {slot["name"]: slot["pid"] for slot in status["slots"] if slot["state"] == "RUNNING"}


class NodeFleet:
    """The nodes of a campaign on one database.

    Args:
        folder: of the project, the logs and the run directories.
        url: of the database, as nodes without a proxy see it.
        history_folder: where handlers write what they see.
        timing: of the nodes.
        names: of the nodes. The last one has a periodic worker instead of one for whole rows, and
            a log that takes nothing.
        through: the address and the proxy of each node; where there is none, nodes go straight to the database.
    """

    def __init__(
        self,
        folder: Path,
        url: str,
        history_folder: Path,
        timing: NodeTiming,
        names: Sequence[str],
        node_urls: Mapping[str, tuple[str, TcpProxy]],
    ) -> None:
        environment = {
            history.VARIABLE: str(history_folder),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        }
        self.environment = {**os.environ, **environment}
        self.cluster = Cluster(folder, url, environment)
        self.run_disk = open_file_system(folder / "run")
        """On which the run directories of all nodes are, where this machine allows it."""
        self.with_all_queues = names[:-1]
        """The nodes that tasks of any queue may be pinned to."""
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        """Where the gateway process of each node listens, in each of its lives."""
        self.nodes = [self._node(name, timing, node_urls.get(name)) for name in names]

    def _node(self, name: str, timing: NodeTiming, node_urls: tuple[str, TcpProxy] | None) -> RestartingNode:
        url, proxy = node_urls or (self.cluster.url, None)
        log = {} if name in self.with_all_queues else {"logging": {"file": "/dev/full"}}
        node = self.cluster.node(
            name,
            node={
                "heartbeat_every": timing.heartbeat_every,
                "grace": timing.grace,
                "run_directory": str(self.cluster.folder / "run" / name),
            },
            database={"url": url},
            manager={
                "every": timing.manager_every,
                "max_update": timing.max_update,
                "inactive_after": 3 * timing.heartbeat_every,
            },
            workers=workers(timing, versions.code_of(name), with_rows=name in self.with_all_queues),
            sections={
                f"gateway.{GATEWAY}": {"bind": f"127.0.0.1:{self.ports[name]}", "protocols": ["beanstalk"]},
                **log,
            },
        )
        return RestartingNode(node, proxy)

    def start(self) -> None:
        """Start all, and wait until all are ready."""
        for node in self.nodes:
            node.start()
        deadline = time.monotonic() + STARTS_WITHIN
        while not all(node.is_ready for node in self.nodes):
            if time.monotonic() > deadline:
                raise AssertionError(f"not all nodes were ready within {STARTS_WITHIN:g} s:\n{self.log_text()}")
            time.sleep(CHECK_EVERY)

    def children(self) -> list[ProcessHandle]:
        """The processes that run in the slots of nodes that are up."""
        return [handle for node in self.nodes if node.is_ready for handle in node.children()]

    def booting(self) -> list[ProcessHandle]:
        """The processes that are being started."""
        return [handle for node in self.nodes for handle in node.booting()]

    def stop(self) -> list[int]:
        """Stop all gracefully; return the processes that were left behind, which are ended now."""
        for node in self.nodes:
            node.stop()
        left = self.cluster.clean_up()
        if self.run_disk is not None:
            self.run_disk.close()
        return left

    def log_text(self) -> str:
        return "\n".join(node.node.log_text() for node in self.nodes)


def workers(timing: NodeTiming, code: str, *, with_rows: bool) -> dict[str, dict[str, Any]]:
    """The workers of a node that has this code: two processes of tasks, and one of whole rows, or a periodic one."""
    shared = {"update": timing.update, "poll_every": timing.poll_every, "delay_ratio": 0.2}
    recycled = {"recycle_after": RECYCLE_AFTER}
    tasks = {"tasks": f"tests.faults.versions:{code}", "processes": 2, "count": 8, **recycled, **shared}
    if with_rows:
        return {jobs.work.name: tasks, jobs.ROWS: {"worker": "tests.faults.jobs:RowWorker", "count": 4, **shared}}
    return {
        jobs.work.name: tasks,
        "rounds": {"worker": "tests.faults.periodic_worker:CountingWorker", "update": timing.update},
    }


def free_ports(number: int) -> list[int]:
    """Ports that nothing listens on, of those that outgoing connections do not get."""
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        if len(found) == number:
            break
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            found.append(port)
    return found


def slot_of(process: psutil.Process, master: int) -> str:
    """The slot that a child of a master was started for; empty for an adopted orphan, and for what has ended."""
    with suppress(OSError):
        for entry in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
            name, _, value = entry.decode(errors="replace").partition("=")
            if name == "PEERD_PROCESS" and value.startswith(f"{master}/"):
                return value.split("/")[1]
    return ""


def _children(process: psutil.Process, *, recursive: bool = False) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return process.children(recursive=recursive)
    return []
