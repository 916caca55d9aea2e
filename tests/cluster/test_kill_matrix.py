"""The kill matrix: the state of a node after one of its processes was killed, terminated or frozen in any situation.

Each cell is one signal to one process in one situation. The same must hold after every cell: the process is gone (or,
when only the master was frozen, continues), the node has all its processes again, every task is done, and there is no
process that does not belong to the node, ffmpeg included. tests/supervision kills masters that boot.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable

import pytest

from peerd import Job
from peerd.domain.lifecycle import Status
from peerd.supervision import control_client
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, Cluster, ClusterNode
from tests.cluster.conftest import MakeCluster

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP)
SITUATIONS = {
    "agent": ("booting", "idle", "busy"),  # it drains with the whole node
    "manager": ("booting", "idle", "busy"),
    "jobs": ("booting", "idle", "busy", "draining"),
    "site": ("booting", "idle", "busy", "draining"),
}
PROCESSES = {"agent": 1, "manager": 1, "jobs": 2, "site": 1}
RecordLine = Callable[[str, str], None]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


class MatrixNode:
    """A node on which cells are tried, one after another.

    Args:
        cluster: its database and project.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        cluster.copy("site_app.py")
        times = {"silent_after": 5.0, "grace": "8s"}
        sections = {"web.site": {"app": "site_app:app", "bind": "127.0.0.1:0"}}
        self.node: ClusterNode = cluster.node("one", node=times, processes=2, sections=sections)
        self.jobs: list[Job] = []
        self.request: socket.socket | None = None

    def ensure_running(self) -> None:
        if self.node.master is None or self.node.master.poll() is not None:
            self.node.up()
        eventually(self.is_at_full_strength, timeout=WITHIN, message=self.cluster.describe)

    def is_at_full_strength(self) -> bool:
        with contextlib.suppress(control_client.MasterNotRunning):
            return self.node.is_complete() and {k: len(self.node.slots(k)) for k in PROCESSES} == PROCESSES
        return False

    # ------------------------------------------------------------ situations

    def process_in(self, situation: str, kind: str) -> int:
        """Bring about the situation; return the process id that receives the signal."""
        if situation == "booting":
            return self._booting_process(kind)
        pid = self.pid(kind)
        if situation == "idle":
            return pid
        if kind == "site":
            self._make_site_busy()
        else:
            holder = self.make_busy()
            pid = holder if kind == "jobs" else pid
        if situation == "draining":
            self._reload(kind)
            eventually(lambda: pid in self._leaving(kind), timeout=WITHIN)
        return pid

    def make_busy(self) -> int:
        """Start a task that runs ffmpeg; return the process id of its holder."""
        self.jobs.append(self.cluster.enqueue("first_encodes"))
        return int(self.cluster.wait_for(self.jobs[-1], "encodes")["pid"])

    def _make_site_busy(self) -> None:
        """Send a request that is answered when the gate opens."""
        self.request = socket.create_connection(("127.0.0.1", self.node.port()), timeout=WITHIN)
        self.request.sendall(b"GET /gated HTTP/1.1\r\nhost: site\r\nconnection: close\r\n\r\n")
        eventually((self.cluster.folder / "entered").exists, timeout=WITHIN, message=self.cluster.describe)

    def _booting_process(self, kind: str) -> int:
        """The process of a kind that boots because of a reload."""
        before = {slot["pid"] for slot in self.node.slots(kind)}
        self._reload(kind)

        def boots() -> int | None:
            for slot in self.node.slots(kind):
                if slot["successor"] or (slot["state"] == "STARTING" and slot["pid"] not in before):
                    return int(slot["successor"] or slot["pid"])
            return None

        return eventually(boots, every=0.005, timeout=WITHIN) or 0

    def _reload(self, kind: str) -> None:
        control_client.send_command(self.node.run_directory, {"command": "reload", "kinds": [kind]})

    def drain_the_node(self) -> None:
        """Stop the whole node, which waits for a running task."""
        self.node.signal_master(signal.SIGTERM)
        eventually(lambda: self.node.state() == "stopping", timeout=WITHIN)

    def open_gates(self) -> None:
        """Let the busy tasks and requests end."""
        (self.cluster.folder / "gate").touch()
        for job in self.jobs:
            self.cluster.open(job)

    # ------------------------------------------------------------ reading

    def _leaving(self, kind: str) -> set[int]:
        return {int(one["pid"]) for slot in self.node.slots(kind) for one in slot["leaving"]}

    def pid(self, kind: str) -> int:
        return int(self.node.slots(kind)[0]["pid"])

    def is_answered(self) -> bool:
        """Whether the request was, and not cut off."""
        assert self.request is not None
        with self.request as request, contextlib.suppress(ConnectionResetError):
            self.request = None
            return request.makefile("rb").readline().startswith(b"HTTP/1.1 200")
        return False

    def cause(self, pid: int) -> str:
        """How a process ended, by the records of the node."""

        def recorded() -> str | None:
            records = self.cluster.client.nodes.processes(ended=True)
            return next((one.cause for one in records if one.pid == pid and one.cause), None)

        return eventually(recorded, timeout=WITHIN, message=self.cluster.describe) or ""

    # ------------------------------------------------------------ the end of a cell

    def wait_until_gone(self, pid: int) -> None:
        eventually(lambda: pid not in self.cluster.processes(), timeout=WITHIN, message=self.cluster.describe)

    def assert_recovers(self, *, node_ended: bool = False) -> None:
        """What must hold after every cell."""
        self.open_gates()
        if node_ended:
            eventually(lambda: not self.cluster.processes(), timeout=WITHIN, message="no process is left")
        self.ensure_running()
        for job in self.jobs:
            self.cluster.done(job)
        self.jobs.clear()
        for file in ("gate", "entered"):
            (self.cluster.folder / file).unlink(missing_ok=True)
        counts = self.cluster.client.tasks.counts()
        assert {status for status in Status if counts[status]} <= {Status.DONE}

        def strangers() -> set[int]:
            return set(self.cluster.processes()) - set(self.node.all_pids())

        eventually(lambda: not strangers(), timeout=WITHIN, message=lambda: f"{strangers()} do not belong to it")


@pytest.fixture(scope="module")
def matrix_node(module_cluster: MakeCluster) -> MatrixNode:
    return MatrixNode(module_cluster("sqlite"))


@pytest.mark.parametrize("kind", SITUATIONS)
def test_a_signaled_process_is_replaced_and_nothing_is_lost(
    matrix_node: MatrixNode, record_line: RecordLine, kind: str
) -> None:
    for situation in SITUATIONS[kind]:
        for number in SIGNALS:
            matrix_node.ensure_running()
            pid = matrix_node.process_in(situation, kind)
            os.kill(pid, number)
            matrix_node.open_gates()
            if matrix_node.request:
                assert matrix_node.is_answered() == (number is signal.SIGTERM)
            matrix_node.wait_until_gone(pid)
            matrix_node.assert_recovers()
            end = "replaced, or the old one stays" if situation == "booting" else matrix_node.cause(pid)
            record_line("kill matrix", f"{kind:<8} {situation:<9} {number.name:<8} {end}")


def test_a_node_that_stops_stops_without_its_manager_and_its_agent(matrix_node: MatrixNode) -> None:
    matrix_node.ensure_running()
    matrix_node.make_busy()
    pids = {matrix_node.pid("manager"): signal.SIGKILL, matrix_node.pid("agent"): signal.SIGSTOP}
    matrix_node.drain_the_node()
    for pid, number in pids.items():
        os.kill(pid, number)
        matrix_node.wait_until_gone(pid)
    matrix_node.open_gates()
    assert matrix_node.node.master is not None
    assert matrix_node.node.master.wait(WITHIN) == 0
    matrix_node.assert_recovers(node_ended=True)


def test_a_signaled_master_leaves_no_process_and_loses_no_task(matrix_node: MatrixNode) -> None:
    node = matrix_node.node
    for situation, number in (
        ("busy", signal.SIGSTOP),
        ("busy", signal.SIGTERM),
        ("busy", signal.SIGKILL),
        ("draining", signal.SIGKILL),
    ):
        matrix_node.ensure_running()
        matrix_node.make_busy()
        if situation == "draining":
            matrix_node.drain_the_node()
        before = node.all_pids()
        node.signal_master(number)
        if number is signal.SIGSTOP:
            with pytest.raises(control_client.MasterNotResponding, match="kill -CONT"):
                control_client.send_command(node.run_directory, {"command": "status"}, timeout=1.0)
            assert set(before) <= set(matrix_node.cluster.processes())
            node.signal_master(signal.SIGCONT)
            matrix_node.assert_recovers()
        else:
            matrix_node.open_gates()
            assert node.master is not None
            assert node.master.wait(WITHIN) == (-signal.SIGKILL if number is signal.SIGKILL else 0)
            matrix_node.assert_recovers(node_ended=True)
