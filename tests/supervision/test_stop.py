from __future__ import annotations

import os
import signal

import pytest

from peerd.supervision import control
from tests.supervision.conftest import Nodes
from tests.supervision.nodes import eventually

AGENT = {"name": "agent", "role": "agent"}
MANAGER = {"name": "manager", "role": "manager"}
WORKER = {"name": "video-1"}


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, "control"])
def test_a_stop_lets_work_finish_and_ends_the_agent_last(node: Nodes, how: signal.Signals | str) -> None:
    toys = node(AGENT, MANAGER, {**WORKER, "work": 1.0}, {"name": "video-2"}).up()
    if isinstance(how, signal.Signals):
        toys.signal(how)
    else:
        control.stop(toys.run_directory, timeout=20)
    assert toys.wait() == 0
    assert {f["slot"] for f in toys.facts("stopped")} == {"agent", "manager", "video-1", "video-2"}
    facts = toys.facts()
    assert all(f["grace"] == 30.0 for f in facts if f["fact"] == "stop")
    agents_turn = next(f["at"] for f in facts if f["fact"] == "quiet" and f["slot"] == "agent")
    assert agents_turn > max(f["at"] for f in facts if f["fact"] == "stopped" and f["slot"] != "agent")
    deaths = toys.received("death", "agent")
    assert sorted(d["slot"] for d in deaths) == ["manager", "video-1", "video-2"]
    assert all(d["expected"] and d["cause"]["status"] == 0 for d in deaths)
    assert not control.control_path(toys.run_directory).exists()
    assert not (toys.run_directory / "master.pid").exists()


@pytest.mark.parametrize(("deed", "cause"), [("block", "exit status 124"), ("deaf", "killed by SIGKILL")])
def test_a_child_that_does_not_stop_is_ended_after_its_grace_with_its_group(node: Nodes, deed: str, cause: str) -> None:
    toys = node(AGENT, {**WORKER, "run": ["spawn", deed], "grace": 0.5, "give_back": 0.5}).up()
    eventually(lambda: toys.facts("blocks") or toys.facts("deaf"))
    assert toys.stop() == 0
    (death,) = toys.received("death", "agent")
    assert (death["cause"]["kind"], death["expected"]) == ("killed-after-grace", True)
    assert cause in death["cause"]["text"]
    assert not toys.processes()


def test_a_thread_that_nobody_can_end_does_not_hold_the_process_up(node: Nodes) -> None:
    toys = node(AGENT, {**WORKER, "run": ["thread"], "grace": 60.0, "give_back": 0.5}).up()
    eventually(lambda: toys.facts("run", "video-1"))
    assert toys.stop() == 0
    (death,) = toys.received("death", "agent")
    assert death["cause"]["status"] == 0, "its service had stopped in time"


def test_the_second_signal_is_fast(node: Nodes) -> None:
    toys = node(AGENT, {**WORKER, "work": 60.0, "grace": 60.0}).up()
    toys.signal(signal.SIGTERM)
    eventually(lambda: toys.facts("stop", "video-1"))
    assert toys.status()["state"] == "stopping"
    assert toys.slot("video-1")["state"] == "DRAINING"
    assert toys.slot("agent")["state"] == "RUNNING"
    toys.signal(signal.SIGTERM)
    assert toys.wait() == 0
    assert [f["grace"] for f in toys.facts("stop", "video-1")] == [60.0, 0.0]
    assert [f["grace"] for f in toys.facts("stopped", "video-1")] == [0.0]


def test_a_fast_stop_leaves_no_grace(node: Nodes) -> None:
    toys = node(AGENT, {**WORKER, "work": 60.0, "grace": 60.0}).up()
    control.stop(toys.run_directory, fast=True, timeout=20)
    assert toys.wait() == 0
    assert [f["grace"] for f in toys.facts("stop")] == [0.0, 0.0]


def test_a_stopping_node_waits_for_its_agent_to_deal_with_the_deaths(node: Nodes) -> None:
    toys = node({**AGENT, "entry": "toys:dies_of_its_first_death"}, {**WORKER, "work": 0.5}).up()
    assert toys.stop() == 0
    told = toys.received("death", "agent")
    assert [d["slot"] for d in told] == ["video-1", "video-1", "agent"], "the new agent was told again"


@pytest.mark.parametrize("how", ["loop", "handler"])
def test_user_code_may_handle_other_signals_itself(node: Nodes, how: str) -> None:
    toys = node(AGENT, {**WORKER, "run": [f"own_signals {how}"]}).up()
    eventually(lambda: toys.facts("own signal", "video-1"))
    pid = toys.slot("video-1")["pid"]
    os.kill(pid, signal.SIGUSR1)
    eventually(lambda: len(toys.facts("own signal", "video-1")) == 2)
    assert not toys.facts("stop")
    os.kill(pid, signal.SIGTERM)
    eventually(lambda: [f["grace"] for f in toys.facts("stop", "video-1")] == [30.0])


def test_a_killed_master_leaves_no_process_behind(node: Nodes) -> None:
    stubborn = {"grace": 0.5, "give_back": 0.5}
    toys = node(
        AGENT,
        {**WORKER, "work": 1.0},
        {"name": "blocked-1", "run": ["spawn", "spawn session", "block"], **stubborn},
        {"name": "threads-1", "run": ["thread"], **stubborn},
        {"name": "spawner-1", "run": ["spawn", "spawn session"]},
        {"name": "tunnel-1", "role": "command", "command": ["sleep", "600"]},
    ).up()
    eventually(lambda: toys.facts("blocks") and len(toys.facts("spawned")) == 4)
    assert len(toys.processes()) == 7 + 4
    toys.signal(signal.SIGKILL)
    eventually(lambda: not toys.processes(), message="all are gone")
    assert [f["grace"] for f in toys.facts("stopped", "video-1")] == [30.0], "it has finished its work before"


def test_a_master_killed_during_the_boot_leaves_no_process_behind(node: Nodes) -> None:
    toys = node(AGENT, {**WORKER, "start": ["sleep 60"]}).start()
    eventually(lambda: toys.facts("start", "video-1"))
    toys.signal(signal.SIGKILL)
    eventually(lambda: not toys.processes(), message="all are gone")
    toys.wait()
