from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from peerd.supervision.control import control_client
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN
from tests.cluster.conftest import MakeCluster
from tests.cluster.kill_matrix import SIGNALS, SITUATIONS, MatrixNode, send_signal, wait_until_gone

RecordLine = Callable[[str, str], None]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def matrix_node(module_cluster: MakeCluster) -> MatrixNode:
    return MatrixNode(module_cluster("sqlite"))


def note(record_line: RecordLine, target: str, situation: str, number: signal.Signals, end: str) -> None:
    target = {"jobs": "tasks", "site": "web"}.get(target, target)
    record_line("kill matrix", f"{target:<8} {situation:<9} {number.name:<8} {end}")


@pytest.mark.parametrize("kind", ["agent", "manager", "jobs", "site"])
def test_a_signaled_process_is_replaced_and_nothing_is_lost(
    matrix_node: MatrixNode, record_line: RecordLine, kind: str
) -> None:
    for situation in SITUATIONS:
        if situation == "draining" and kind in ("agent", "manager"):
            continue  # they drain with the whole node
        for number in SIGNALS:
            matrix_node.ensure_running()
            pid = process_in_situation(matrix_node, kind, situation)
            send_signal(pid, number)
            matrix_node.open_gates()
            answer = answer_of(matrix_node, number) if matrix_node.requests else ""
            wait_until_gone(matrix_node, pid)
            matrix_node.assert_recovers()
            note(record_line, kind, situation, number, outcome_of(matrix_node, pid, situation) + answer)


def test_a_node_that_stops_stops_without_its_manager_and_its_agent(
    matrix_node: MatrixNode, record_line: RecordLine
) -> None:
    for number in SIGNALS:
        matrix_node.ensure_running()
        matrix_node.make_busy()
        pids = {kind: matrix_node.pid(kind) for kind in ("manager", "agent")}
        matrix_node.drain_the_node()
        for kind, pid in pids.items():
            send_signal(pid, number)
            wait_until_gone(matrix_node, pid)
            note(record_line, kind, "draining", number, "the node ends in order, status 0")
        matrix_node.open_gates()
        assert matrix_node.node.master is not None
        assert matrix_node.node.master.wait(WITHIN) == 0
        matrix_node.assert_recovers(node_ended=True)


def answer_of(matrix_node: MatrixNode, number: signal.Signals) -> str:
    """How the running request ended: a process that receives SIGTERM answers it."""
    answer = matrix_node.answer()
    assert (answer == "answered") == (number is signal.SIGTERM)
    return f"; its request was {answer}"


def outcome_of(matrix_node: MatrixNode, pid: int, situation: str) -> str:
    return (
        "booted again, or the old one stays" if situation == "booting" else f"replaced; it was {matrix_node.cause(pid)}"
    )


def process_in_situation(matrix_node: MatrixNode, kind: str, situation: str) -> int:
    """Bring about the situation; return the process id that receives the signal."""
    if situation == "booting":
        return matrix_node.booting_process(kind)
    if situation == "idle":
        return matrix_node.pid(kind)
    if kind == "site":
        matrix_node.make_site_busy()
        pid = matrix_node.pid(kind)
        return matrix_node.draining_process(kind, pid) if situation == "draining" else pid
    job = matrix_node.make_busy()
    claiming_node = int(matrix_node.cluster.wait_for(job, "began")["pid"])
    pid = claiming_node if kind == "jobs" else matrix_node.pid(kind)
    return matrix_node.draining_process(kind, pid) if situation == "draining" else pid


def test_a_signaled_master_leaves_no_process_and_loses_no_task(
    matrix_node: MatrixNode, record_line: RecordLine
) -> None:
    for situation in SITUATIONS:
        for number in SIGNALS:
            if situation == "booting":
                if matrix_node.node.master is not None and matrix_node.node.master.poll() is None:
                    assert matrix_node.node.stop() == 0
                matrix_node.node.start()
                eventually(
                    lambda: matrix_node.node.state() == "starting" and matrix_node.node.slots("jobs")[0]["pid"],
                    timeout=WITHIN,
                )
            else:
                matrix_node.ensure_running()
            if situation in ("busy", "draining"):
                matrix_node.make_busy()
            if situation == "draining":
                matrix_node.drain_the_node()
            end = signal_master(matrix_node, situation, number)
            note(record_line, "master", situation, number, end)


def signal_master(matrix_node: MatrixNode, situation: str, number: signal.Signals) -> str:
    master = matrix_node.node.master
    assert master is not None
    all_pids = matrix_node.node.all_pids()
    send_signal(master.pid, number)
    if number is signal.SIGSTOP:
        with pytest.raises(control_client.MasterNotResponding, match="kill -CONT"):
            control_client.send_command(matrix_node.node.run_directory, {"command": "status"}, timeout=1.0)
        assert set(all_pids) <= set(matrix_node.cluster.processes()) or situation == "draining"
        send_signal(master.pid, signal.SIGCONT)
        if situation == "draining":
            assert master.wait(WITHIN) == 0
        matrix_node.assert_recovers(node_ended=situation == "draining")
        return "waits while it is frozen, then continues"
    matrix_node.open_gates()
    status = master.wait(WITHIN)
    assert status == (-signal.SIGKILL if number is signal.SIGKILL else 0)
    matrix_node.assert_recovers(node_ended=True)
    return "its children leave by themselves" if number is signal.SIGKILL else "the node ends in order, status 0"
