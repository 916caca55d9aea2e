"""Hooks of a process at a stop: they are awaited, and cannot delay the stop for ever."""

from __future__ import annotations

import os
import signal
from typing import Any

from peerd.supervision.control import control_client
from tests.supervision.conftest import Nodes
from tests.supervision.nodes import eventually
from tests.supervision.test_crash import running_again

AGENT: dict[str, Any] = {"name": "agent", "role": "agent"}
WORKER: dict[str, Any] = {"name": "video-1"}


def test_a_stop_waits_for_what_agent_and_workers_still_do(node: Nodes) -> None:
    stub_node = node({**AGENT, "stop": ["sleep 0.3"]}, {**WORKER, "stop": ["sleep 0.3"]}).up()
    assert stub_node.stop() == 0
    for slot in ("agent", "video-1"):
        (began,), (ended,) = stub_node.notes("stop", slot), stub_node.notes("stopped", slot)
        assert ended["at"] - began["at"] >= 0.3


def test_a_process_whose_stop_raises_ends_all_the_same_and_its_error_is_reported(node: Nodes) -> None:
    stub_node = node({**AGENT, "stop": ["fail the agent's"]}, {**WORKER, "stop": ["fail the worker's"]}).up()
    assert stub_node.stop() == 0
    (death,) = stub_node.received("death", "agent")
    assert (death["expected"], death["cause"]["status"]) == (True, 70)
    assert "RuntimeError: the worker's" in death["cause"]["text"]
    assert "RuntimeError: the agent's" in stub_node.log_text()


def test_a_process_whose_stop_does_not_end_is_ended_when_its_time_is_up(node: Nodes) -> None:
    stub_node = node(AGENT, {**WORKER, "stop": ["sleep 600"], "grace": 0.3, "release_time": 0.3}).up()
    assert stub_node.stop() == 0
    (death,) = stub_node.received("death", "agent")
    assert (death["cause"]["kind"], death["cause"]["status"]) == ("killed-after-grace", 124)


def test_a_process_that_is_sent_sigterm_again_and_again_stops_with_no_grace(node: Nodes) -> None:
    stub_node = node(AGENT, {**WORKER, "work": 600.0}).up()
    pid = stub_node.slot("video-1")["pid"]
    os.kill(pid, signal.SIGTERM)
    eventually(lambda: stub_node.notes("stop", "video-1"))
    for _ in range(5):
        os.kill(pid, signal.SIGTERM)
    (death,) = eventually(lambda: stub_node.received("death", "agent"))
    assert (death["pid"], death["cause"]["status"]) == (pid, 75)
    assert [fact["grace"] for fact in stub_node.notes("stop") if fact["pid"] == pid] == [30.0, 0.0]
    running_again(stub_node, "video-1", pid)
    control_client.stop(stub_node.run_directory, fast=True, timeout=60)


def test_a_signal_to_a_process_that_is_all_but_gone_does_not_change_how_it_ends(node: Nodes) -> None:
    stub_node = node(AGENT, {**WORKER, "run": ["once late_signal", "once recycle"]}).up()
    (death,) = eventually(lambda: stub_node.received("death", "agent"))
    assert (death["cause"]["kind"], death["cause"]["status"]) == ("recycled", 75)
    assert stub_node.stop() == 0
