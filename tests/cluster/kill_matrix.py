"""The kill matrix: the state of a node after one of its processes was killed, terminated or frozen in any situation.

Each cell is one signal to one process in one situation. The same must hold after every cell: the process is gone (or,
when only the master was frozen, continues), the node has all its processes again, every task is done, and there is no
process that does not belong to the node, ffmpeg included.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket

from peerd import Job
from peerd.domain.lifecycle import Status
from peerd.supervision.control import control_client
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, Cluster, ClusterNode

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP)
SITUATIONS = ("booting", "idle", "busy", "draining")
SILENT_AFTER = 5.0


class MatrixNode:
    """A node on which cells are tried, one after another.

    Args:
        cluster: its database and project.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.kinds = {"jobs": 2, "site": 1}
        times = {"silent_after": SILENT_AFTER, "grace": "8s"}
        sections = {"web.site": {"app": "site_app:app", "bind": "127.0.0.1:0"}}
        self.node: ClusterNode = cluster.node("one", node=times, processes=2, sections=sections)
        self.jobs: list[Job] = []
        self.requests: list[socket.socket] = []
        cluster.copy("site_app.py")

    # ------------------------------------------------------------ situations

    def ensure_running(self) -> None:
        master = self.node.master
        if master is None or master.poll() is not None:
            self.node.up()
        eventually(self.is_at_full_strength, timeout=WITHIN, message=self.cluster.describe)

    def make_busy(self) -> Job:
        """Start a task that runs ffmpeg."""
        job = self.cluster.enqueue("first_encodes")
        self.jobs.append(job)
        self.cluster.wait_for(job, "encodes")
        return job

    def make_site_busy(self) -> socket.socket:
        """Send a request that is answered when the gate opens."""
        request = socket.create_connection(("127.0.0.1", self.node.port()), timeout=WITHIN)
        request.sendall(b"GET /gated HTTP/1.1\r\nhost: site\r\nconnection: close\r\n\r\n")
        eventually((self.cluster.folder / "entered").exists, timeout=WITHIN, message=self.cluster.describe)
        self.requests.append(request)
        return request

    def open_gates(self) -> None:
        """Let the busy tasks and requests end."""
        (self.cluster.folder / "gate").touch()
        for job in self.jobs:
            self.cluster.open(job)

    def answer(self) -> str:
        """How the request ended."""
        with self.requests.pop() as request, contextlib.suppress(ConnectionResetError):
            return "answered" if request.makefile("rb").readline().startswith(b"HTTP/1.1 200") else "cut off"
        return "cut off"

    def booting_process(self, kind: str) -> int:
        """The process of a kind that boots because of a reload."""
        before = {slot["pid"] for slot in self.node.slots(kind)}
        control_client.send_command(self.node.run_directory, {"command": "reload", "kinds": [kind]})

        def boots() -> int | None:
            for slot in self.node.slots(kind):
                if slot["successor"] or (slot["state"] == "STARTING" and slot["pid"] not in before):
                    return int(slot["successor"] or slot["pid"])
            return None

        return eventually(boots, every=0.005, timeout=WITHIN) or 0

    def draining_process(self, kind: str, pid: int) -> int:
        """The given process, which finishes its work because of a reload."""
        control_client.send_command(self.node.run_directory, {"command": "reload", "kinds": [kind]})
        eventually(lambda: pid in self.leaving(kind), timeout=WITHIN)
        return pid

    def drain_the_node(self) -> None:
        """Stop the whole node, which waits for a running task."""
        assert self.node.master is not None
        self.node.master.send_signal(signal.SIGTERM)
        eventually(lambda: self.node.state() == "stopping", timeout=WITHIN)

    # ------------------------------------------------------------ reading

    def leaving(self, kind: str) -> set[int]:
        return {int(one["pid"]) for slot in self.node.slots(kind) for one in slot["leaving"]}

    def pid(self, kind: str) -> int:
        return int(self.node.slots(kind)[0]["pid"])

    def cause(self, pid: int) -> str:
        """How a process ended, by the records of the node."""

        def recorded() -> str | None:
            records = self.cluster.client.nodes.processes(ended=True)
            return next((one.cause for one in records if one.pid == pid and one.cause), None)

        return eventually(recorded, timeout=WITHIN, message=self.cluster.describe) or ""

    def is_at_full_strength(self) -> bool:
        with contextlib.suppress(control_client.MasterNotRunning):
            wanted = {"agent": 1, "manager": 1, **self.kinds}
            return self.node.is_complete() and {kind: len(self.node.slots(kind)) for kind in wanted} == wanted
        return False

    # ------------------------------------------------------------ the end of a cell

    def is_alive(self, pid: int) -> bool:
        return pid in self.cluster.processes()

    def assert_recovers(self, *, node_ended: bool = False) -> None:
        """What must hold after every cell."""
        self.open_gates()
        if node_ended:
            eventually(lambda: not self.cluster.processes(), timeout=WITHIN, message="no process is left")
            self.node.up()
        eventually(self.is_at_full_strength, timeout=WITHIN, message=self.cluster.describe)
        for job in self.jobs:
            self.cluster.done(job)
        self.jobs.clear()
        for file in ("gate", "entered"):
            (self.cluster.folder / file).unlink(missing_ok=True)
        counts = self.cluster.client.tasks.counts()
        assert {status for status in Status if counts[status]} <= {Status.DONE}
        eventually(
            lambda: not self.leftover_pids(),
            timeout=WITHIN,
            message=lambda: f"{self.leftover_pids()} do not belong to it",
        )

    def leftover_pids(self) -> set[int]:
        """Processes that the node has started and that its process table does not contain."""
        return set(self.cluster.processes()) - set(self.node.all_pids())


def send_signal(pid: int, number: signal.Signals) -> None:
    os.kill(pid, number)


def wait_until_gone(matrix_node: MatrixNode, pid: int) -> None:
    eventually(lambda: not matrix_node.is_alive(pid), timeout=WITHIN, message=matrix_node.cluster.describe)
