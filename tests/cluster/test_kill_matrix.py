from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from peerd.supervision.control import control_client
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, Cluster
from tests.cluster.kill_matrix import SIGNALS, SITUATIONS, Field, hit, until_gone

RecordLine = Callable[[str, str], None]
KINDS = {"jobs": 2}
WITH_A_SITE = {"jobs": 1, "site": 1}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def note(record_line: RecordLine, target: str, situation: str, number: signal.Signals, end: str) -> None:
    target = {"jobs": "tasks", "site": "web"}.get(target, target)
    record_line("kill matrix", f"{target:<8} {situation:<9} {number.name:<8} {end}")


@pytest.mark.parametrize("kind", ["agent", "manager", "jobs", "site"])
def test_a_process_that_is_hit_is_replaced_and_nothing_is_lost(
    cluster: Cluster, record_line: RecordLine, kind: str
) -> None:
    field = Field(cluster, WITH_A_SITE if kind == "site" else KINDS)
    for situation in SITUATIONS:
        for number in SIGNALS:
            field.be_up()
            node_ends = situation == "draining" and kind in ("agent", "manager")
            pid = the_process(field, kind, situation)
            hit(pid, number)
            field.open_gates()
            answer = answer_of(field, number) if field.requests else ""
            until_gone(field, pid)
            if node_ends:
                assert field.node.master is not None
                assert field.node.master.wait(WITHIN) == 0
            field.must_recover(node_ended=node_ends)
            note(record_line, kind, situation, number, the_end(field, pid, situation, node_ends=node_ends) + answer)


def answer_of(field: Field, number: signal.Signals) -> str:
    """What became of the request that was at work: who is only asked to stop answers it."""
    answer = field.answer()
    assert (answer == "answered") == (number is signal.SIGTERM)
    return f"; its request was {answer}"


def the_end(field: Field, pid: int, situation: str, *, node_ends: bool) -> str:
    if node_ends:
        return "the node ends in order, status 0"
    return "booted again, or the old one stays" if situation == "booting" else f"replaced; it was {field.cause(pid)}"


def the_process(field: Field, kind: str, situation: str) -> int:
    """Bring the situation about, and say whom to hit."""
    if situation == "booting":
        return field.booting_process(kind)
    if situation == "idle":
        return field.pid(kind)
    if kind == "site":
        field.make_the_site_busy()
        pid = field.pid(kind)
        return field.draining_process(kind, pid) if situation == "draining" else pid
    job = field.make_busy()
    holder = int(field.cluster.wait_for(job, "began")["pid"])
    pid = holder if kind == "jobs" else field.pid(kind)
    if situation == "draining" and kind in ("agent", "manager"):
        field.drain_the_node()
    elif situation == "draining":
        field.draining_process(kind, pid)
    return pid


def test_a_master_that_is_hit_leaves_no_process_and_loses_no_task(cluster: Cluster, record_line: RecordLine) -> None:
    field = Field(cluster, KINDS)
    for situation in SITUATIONS:
        for number in SIGNALS:
            if situation == "booting":
                if field.node.master is not None and field.node.master.poll() is None:
                    assert field.node.stop() == 0
                field.node.start()
                eventually(lambda: field.node.state() == "starting" and field.slots("jobs")[0]["pid"], timeout=WITHIN)
            else:
                field.be_up()
            if situation in ("busy", "draining"):
                field.make_busy()
            if situation == "draining":
                field.drain_the_node()
            end = hit_the_master(field, situation, number)
            note(record_line, "master", situation, number, end)


def hit_the_master(field: Field, situation: str, number: signal.Signals) -> str:
    master = field.node.master
    assert master is not None
    family = field.node.family()
    hit(master.pid, number)
    if number is signal.SIGSTOP:
        with pytest.raises(control_client.NotAnswering, match="kill -CONT"):
            control_client.ask(field.node.run_directory, {"command": "status"}, timeout=1.0)
        assert set(family) <= set(field.cluster.processes()) or situation == "draining"
        hit(master.pid, signal.SIGCONT)
        if situation == "draining":
            assert master.wait(WITHIN) == 0
        field.must_recover(node_ended=situation == "draining")
        return "waits while it is frozen, then goes on"
    field.open_gates()
    status = master.wait(WITHIN)
    assert status == (-signal.SIGKILL if number is signal.SIGKILL else 0)
    field.must_recover(node_ended=True)
    return "its children leave by themselves" if number is signal.SIGKILL else "the node ends in order, status 0"
