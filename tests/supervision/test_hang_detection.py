from __future__ import annotations

import os
import signal
import time

import pytest

from tests.supervision.conftest import Nodes
from tests.supervision.nodes import AGENT, WORKER, eventually
from tests.supervision.test_crash import running_again


def test_the_status_shows_the_delay_of_an_event_loop_and_how_long_a_process_has_been_silent(node: Nodes) -> None:
    stub_node = node(AGENT, WORKER, {"name": "any-1", "role": "command", "command": ["sleep", "600"]}).up()
    measurements = eventually(lambda: stub_node.slot("video-1")["vitals"])
    assert measurements["lag"] < 2.0
    assert measurements["in_flight"] == 0
    pid = stub_node.slot("video-1")["pid"]
    eventually(lambda: stub_node.slot("video-1")["silent_for"] < 2.5, message="it sends a frame every two seconds")
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: stub_node.slot("video-1")["silent_for"] > 3.0)
    assert stub_node.slot("any-1")["silent_for"] is None, "which has no way to say anything"
    os.kill(pid, signal.SIGCONT)
    eventually(lambda: stub_node.slot("video-1")["silent_for"] < 2.5)


def test_a_frozen_process_is_killed_and_replaced(node: Nodes) -> None:
    stub_node = node(AGENT, {**WORKER, "silent_after": 3.0}).up()
    pid = stub_node.slot("video-1")["pid"]
    os.kill(pid, signal.SIGSTOP)
    running_again(stub_node, "video-1", pid)
    (death,) = eventually(lambda: stub_node.received("death", "agent"))
    assert death["cause"]["kind"] == "silent"
    assert death["expected"] is False
    (alert,) = stub_node.received("alert", "agent")
    assert (alert["alert"], alert["slot"]) == ("silent", "video-1")


@pytest.mark.slow
def test_an_event_loop_that_stalls_is_shown_and_its_process_replaced(node: Nodes) -> None:
    stub_node = node(AGENT, {**WORKER, "hang_after": 3.0, "grace": 0.5, "run": ["sleep 0.2", "once block"]}).up()
    old = stub_node.notes("start", "video-1")[0]["pid"]
    running_again(stub_node, "video-1", old)
    (death,) = eventually(lambda: stub_node.received("death", "agent"))
    assert death["cause"]["kind"] == "killed-after-grace", "its loop could not process the stop"
    assert "its event loop has not answered for" in death["cause"]["text"]
    assert "do_block" in stub_node.log_text(), "the log shows where it hung"


@pytest.mark.slow
def test_an_agent_that_is_frozen_is_replaced_and_the_workers_are_not(node: Nodes) -> None:
    stub_node = node({**AGENT, "silent_after": 3.0}, WORKER).up()
    worker, agent = stub_node.slot("video-1")["pid"], stub_node.slot("agent")["pid"]
    os.kill(agent, signal.SIGSTOP)
    running_again(stub_node, "agent", agent)
    assert stub_node.slot("video-1")["pid"] == worker


@pytest.mark.slow
def test_a_master_that_was_frozen_itself_takes_no_process_for_silent(node: Nodes) -> None:
    stub_node = node({**AGENT, "silent_after": 3.0}, {**WORKER, "silent_after": 3.0}).up()
    before = [slot["pid"] for slot in stub_node.status()["slots"]]
    stub_node.signal(signal.SIGSTOP)
    time.sleep(6.0)  # how long it is frozen: longer than a silent one may be
    stub_node.signal(signal.SIGCONT)
    eventually(lambda: stub_node.slot("video-1")["vitals"])
    assert [slot["pid"] for slot in stub_node.status()["slots"]] == before


@pytest.mark.slow
def test_a_slot_that_fails_ten_times_in_its_boot_recovers_by_itself_and_its_status_shows_it(node: Nodes) -> None:
    stub_node = node(AGENT, {**WORKER, "entry": "stub_services:weak_for_ten_boots", "backoff_maximum": 0.3}).up()
    pid = stub_node.kill("video-1")
    seen = set()

    def runs_again() -> bool:
        slot = stub_node.slot("video-1")
        seen.add((slot["state"], slot["error"]))
        return bool(slot["state"] == "RUNNING" and slot["pid"] != pid)

    eventually(runs_again, timeout=60.0)
    slot = stub_node.slot("video-1")
    assert (slot["generation"], slot["restarts"], slot["error"]) == (12, 11, None)
    assert ("BACKOFF", "RuntimeError: the disk is not mounted") in seen
    assert stub_node.slot("agent")["restarts"] == 0
    assert [a["alert"] for a in stub_node.received("alert", "agent")] == ["crash-loop"] * 9
