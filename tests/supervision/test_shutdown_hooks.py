"""Hooks of a process at a stop: they are awaited, and cannot delay the stop for ever."""

from __future__ import annotations

import os
import signal

from peerd.supervision.control import control_client
from tests.supervision.conftest import Nodes
from tests.supervision.nodes import AGENT, WORKER, eventually
from tests.supervision.test_crash import running_again


def test_a_stop_waits_for_what_processes_still_do_until_their_time_is_up_and_reports_what_they_raise(
    node: Nodes,
) -> None:
    stub_node = node(
        {**AGENT, "stop": ["sleep 0.3", "fail the agent's"]},
        {"name": "slow-1", "stop": ["sleep 0.3"]},
        {"name": "raising-1", "stop": ["fail the worker's"]},
        {"name": "endless-1", "stop": ["sleep 600"], "grace": 0.3, "release_time": 0.3},
    ).up()
    assert stub_node.stop() == 0
    (began,), (ended,) = stub_node.notes("stop", "slow-1"), stub_node.notes("stopped", "slow-1")
    assert ended["at"] - began["at"] >= 0.3
    causes = {death["slot"]: death["cause"] for death in stub_node.received("death", "agent")}
    found = {slot: (cause["kind"], cause["status"]) for slot, cause in causes.items()}
    assert found == {"slow-1": ("exit", 0), "raising-1": ("exit", 70), "endless-1": ("killed-after-grace", 124)}
    assert "RuntimeError: the worker's" in causes["raising-1"]["text"]
    assert "RuntimeError: the agent's" in stub_node.log_text()


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
