"""Processes that die again and again, all at once, or while nobody listens any more."""

from __future__ import annotations

import os
import signal
from typing import Any

from peerd.supervision.control import control_client
from tests.supervision.conftest import Nodes
from tests.supervision.nodes import eventually
from tests.supervision.test_crash import running_again
from tests.supervision.test_reload import pids, reload

AGENT: dict[str, Any] = {"name": "agent", "role": "agent"}
WORKER: dict[str, Any] = {"name": "video-1"}


def test_a_worker_is_replaced_as_often_as_it_dies(node: Nodes) -> None:
    toys = node(AGENT, WORKER, {"name": "video-2"}).up()
    before = pids(toys)
    for _ in range(3):
        running_again(toys, "video-1", toys.kill("video-1"))
    assert [fact["generation"] for fact in toys.facts("start", "video-1")] == [1, 2, 3, 4]
    assert len({fact["pid"] for fact in toys.facts("start", "video-1")}) == 4
    after = pids(toys)
    assert (after["agent"], after["video-2"]) == (before["agent"], before["video-2"])


def test_workers_that_are_all_killed_at_once_are_all_replaced(node: Nodes) -> None:
    toys = node(AGENT, WORKER, {"name": "video-2"}, {"name": "audio-1"}).up()
    before = pids(toys)
    for pid in (slot_pid for slot, slot_pid in before.items() if slot != "agent"):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: [slot["restarts"] for slot in toys.status()["slots"]] == [0, 1, 1, 1])
    eventually(lambda: {slot["state"] for slot in toys.status()["slots"]} == {"RUNNING"})
    assert toys.slot("agent")["pid"] == before["agent"]
    assert toys.status()["state"] == "running"


def test_an_agent_that_keeps_failing_is_tried_again_and_the_workers_go_on(node: Nodes) -> None:
    toys = node({**AGENT, "entry": "stub_services:weak_after_first_boot"}, WORKER).up()
    worker = toys.slot("video-1")["pid"]
    killed = toys.kill("agent")
    eventually(lambda: toys.slot("agent")["restarts"] >= 3, message="it was tried again and again")
    agent = running_again(toys, "agent", killed)
    eventually(lambda: [ready for ready in toys.facts("received", "agent") if ready["pid"] == agent])
    assert (toys.slot("video-1")["pid"], toys.slot("video-1")["restarts"]) == (worker, 0)
    assert toys.status()["state"] == "running"


def test_a_node_whose_output_nobody_reads_any_more_goes_on(node: Nodes) -> None:
    """As after the end of the program that had started it, and read what it wrote."""
    toys = node(AGENT, {**WORKER, "run": ["write 5"]})
    toys.before = """
import os
readable, writable = os.pipe()
os.close(readable)
os.dup2(writable, 1)
os.dup2(writable, 2)
"""
    toys.up()
    running_again(toys, "video-1", toys.kill("video-1"))
    assert toys.stop() == 0


def test_two_reloads_at_once_follow_each_other_and_leave_one_process_in_each_slot(node: Nodes) -> None:
    toys = node(AGENT, WORKER, {"name": "video-2"}).up()
    before = pids(toys)
    for _ in range(2):
        control_client.ask(toys.run_directory, {"command": "reload", "kinds": ["video"]})
    eventually(lambda: [one["progress"] for one in toys.status()["reloads"]] == ["done", "done"])
    eventually(lambda: len(toys.processes()) == 1 + len(before), message="the old ones have left")
    assert [slot["generation"] for slot in toys.status()["slots"]] == [1, 3, 3]
    assert toys.slot("agent")["pid"] == before["agent"]


def test_a_reload_brings_back_what_had_left_and_what_waits_after_failures(node: Nodes) -> None:
    toys = node(
        AGENT,
        {**WORKER, "run": ["once leave"]},
        {"name": "audio-1", "run": ["sleep 0.2", "once crash"], "run-crash": 2, "backoff_initial": 600.0},
    ).up()
    eventually(lambda: [toys.slot(name)["state"] for name in ("video-1", "audio-1")] == ["EXITED", "BACKOFF"])
    assert reload(toys)["progress"] == "done"
    eventually(lambda: {slot["state"] for slot in toys.status()["slots"]} == {"RUNNING"})
