"""Processes that die repeatedly or all at once, and a node whose output is no longer read."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from peerd.supervision.control import control_client
from tests.supervision.conftest import Nodes
from tests.supervision.nodes import AGENT, WORKER, eventually
from tests.supervision.test_crash import running_again
from tests.supervision.test_reload import pids, reload


def test_workers_are_replaced_as_often_as_they_die_and_when_all_do_at_once(node: Nodes) -> None:
    stub_node = node(AGENT, WORKER, {"name": "video-2"}, {"name": "audio-1"}).up()
    before = pids(stub_node)
    for _ in range(3):
        running_again(stub_node, "video-1", stub_node.kill("video-1"))
    assert [fact["generation"] for fact in stub_node.notes("start", "video-1")] == [1, 2, 3, 4]
    assert len({fact["pid"] for fact in stub_node.notes("start", "video-1")}) == 4
    after = pids(stub_node)
    assert {slot for slot in before if before[slot] != after[slot]} == {"video-1"}
    for pid in (slot_pid for slot, slot_pid in after.items() if slot != "agent"):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: [slot["restarts"] for slot in stub_node.status()["slots"]] == [0, 4, 1, 1])
    eventually(lambda: {slot["state"] for slot in stub_node.status()["slots"]} == {"RUNNING"})
    assert stub_node.slot("agent")["pid"] == before["agent"]
    assert stub_node.status()["state"] == "running"


def test_an_agent_that_keeps_failing_is_tried_again_and_the_workers_go_on(node: Nodes) -> None:
    stub_node = node({**AGENT, "entry": "stub_services:weak_after_first_boot"}, WORKER).up()
    worker = stub_node.slot("video-1")["pid"]
    killed = stub_node.kill("agent")
    eventually(lambda: stub_node.slot("agent")["restarts"] >= 3, message="it was tried again and again")
    agent = running_again(stub_node, "agent", killed)
    eventually(lambda: [ready for ready in stub_node.notes("received", "agent") if ready["pid"] == agent])
    assert (stub_node.slot("video-1")["pid"], stub_node.slot("video-1")["restarts"]) == (worker, 0)
    assert stub_node.status()["state"] == "running"


def test_a_node_whose_output_is_not_read_any_more_continues(node: Nodes) -> None:
    """As after the end of the program that had started it, and read what it wrote."""
    stub_node = node(AGENT, {**WORKER, "run": ["write 5"]})
    stub_node.before = """
import os
readable, writable = os.pipe()
os.close(readable)
os.dup2(writable, 1)
os.dup2(writable, 2)
"""
    stub_node.up()
    running_again(stub_node, "video-1", stub_node.kill("video-1"))
    assert stub_node.stop() == 0


def test_two_reloads_at_once_follow_each_other_and_leave_one_process_in_each_slot(node: Nodes) -> None:
    stub_node = node(AGENT, WORKER, {"name": "video-2"}).up()
    before = pids(stub_node)
    for _ in range(2):
        control_client.send_command(stub_node.run_directory, {"command": "reload", "kinds": ["video"]})
    eventually(lambda: [one["progress"] for one in stub_node.status()["reloads"]] == ["done", "done"])
    eventually(lambda: len(stub_node.processes()) == 1 + len(before), message="the old ones have left")
    assert [slot["generation"] for slot in stub_node.status()["slots"]] == [1, 3, 3]
    assert stub_node.slot("agent")["pid"] == before["agent"]


def test_a_reload_brings_back_what_had_left_and_what_waits_after_failures(node: Nodes, tmp_path: Path) -> None:
    up = tmp_path / "up"  # a crash during the start, with so long a pause after it, would delay the start
    crashing = {"name": "audio-1", "run": [f"until {up}", "once crash"], "run-crash": 2, "backoff_initial": 600.0}
    stub_node = node(AGENT, {**WORKER, "run": ["once leave"]}, crashing).up()
    up.touch()
    eventually(lambda: [stub_node.slot(name)["state"] for name in ("video-1", "audio-1")] == ["EXITED", "BACKOFF"])
    assert reload(stub_node)["progress"] == "done"
    eventually(lambda: {slot["state"] for slot in stub_node.status()["slots"]} == {"RUNNING"})
