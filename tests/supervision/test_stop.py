from __future__ import annotations

import os
import signal
import time

import pytest

from peerd.supervision import control_client
from tests.supervision.conftest import Nodes
from tests.supervision.nodes import AGENT, HERE, MANAGER, WORKER, eventually, is_alive
from tests.supervision.test_crash import running_again


def test_a_stop_lets_work_finish_and_ends_the_agent_last(node: Nodes) -> None:
    for how in (signal.SIGINT, signal.SIGQUIT, "control"):
        stub_node = node(AGENT, MANAGER, {**WORKER, "work": 0.3}, {"name": "video-2"}).up()
        if isinstance(how, signal.Signals):
            stub_node.signal(how)
        else:
            control_client.stop(stub_node.run_directory, timeout=60)
        assert stub_node.wait() == 0, how
        assert {f["slot"] for f in stub_node.notes("stopped")} == {"agent", "manager", "video-1", "video-2"}
        notes = stub_node.notes()
        assert all(f["grace"] == 30.0 for f in notes if f["kind"] == "stop")
        agent_stopped_at = next(f["at"] for f in notes if f["kind"] == "stop" and f["slot"] == "agent")
        assert agent_stopped_at > max(f["at"] for f in notes if f["kind"] == "stopped" and f["slot"] != "agent")
        deaths = stub_node.received("death", "agent")
        assert sorted(d["slot"] for d in deaths) == ["manager", "video-1", "video-2"]
        assert all(d["expected"] and d["cause"]["status"] == 0 for d in deaths)
        assert not control_client.control_path(stub_node.run_directory).exists()
        assert not (stub_node.run_directory / "master.pid").exists()


def test_a_child_that_does_not_stop_is_ended_after_its_grace_with_its_group(node: Nodes) -> None:
    short = {"grace": 0.5, "release_time": 0.5}
    deeds = {"block": "exit status 124", "deaf": "killed by SIGKILL"}
    stub_node = node(AGENT, *[{"name": f"{deed}-1", "run": ["spawn", deed], **short} for deed in deeds]).up()
    eventually(lambda: stub_node.notes("blocks") and stub_node.notes("deaf"))
    assert stub_node.stop() == 0
    for death in stub_node.received("death", "agent"):
        assert (death["cause"]["kind"], death["expected"]) == ("killed-after-grace", True)
        assert deeds[death["kind"]] in death["cause"]["text"]
    assert len(stub_node.received("death", "agent")) == 2
    assert not stub_node.processes()


@pytest.mark.slow
def test_an_agent_that_does_not_stop_is_ended_after_its_grace(node: Nodes) -> None:
    stub_node = node({**AGENT, "run": ["block"], "grace": 0.3, "release_time": 0.3}).up()
    eventually(lambda: stub_node.notes("blocks"))
    began = time.monotonic()
    assert stub_node.stop() == 0
    assert time.monotonic() - began >= 0.6
    assert not stub_node.notes("stopped")
    assert not stub_node.processes()


def test_what_a_process_has_started_ends_with_it_even_if_it_ignores_signals(node: Nodes) -> None:
    run = ["spawn", "spawn session", "spawn_deaf", "spawn_deaf session"]
    stub_node = node(AGENT, {**WORKER, "run": run}, {"name": "video-2", "run": run}).up()
    eventually(lambda: len(stub_node.notes("spawned")) == 8)
    assert len(stub_node.processes()) == 4 + 2 * 6, "each deaf one has started another one"
    mine = [note["program"] for note in stub_node.notes("spawned", "video-1")]
    others = [note["program"] for note in stub_node.notes("spawned", "video-2")]
    os.kill(mine[-1], signal.SIGTERM)
    stub_node.kill("video-1")
    eventually(lambda: not any(is_alive(program) for program in mine))
    assert all(is_alive(program) for program in others)
    eventually(
        lambda: stub_node.slot("video-1")["state"] == "RUNNING" and len(stub_node.notes("spawned", "video-1")) == 8
    )
    assert stub_node.stop() == 0
    assert not stub_node.processes()


@pytest.mark.slow
def test_a_command_that_ignores_signals_is_killed_after_its_grace_with_all_that_it_has_started(node: Nodes) -> None:
    script = "trap '' TERM; sleep 600 & sleep 600 & touch ready; wait; wait; wait"
    tunnel = {"name": "tunnel-1", "role": "command", "command": ["sh", "-c", script], "grace": 0.3, "release_time": 0.1}
    stub_node = node(AGENT, tunnel)
    stub_node.plan["project_directory"] = str(stub_node.folder)
    stub_node.plan["kinds"][0]["environment"] = {"PYTHONPATH": str(HERE)}
    stub_node.up()
    eventually((stub_node.folder / "ready").exists)
    eventually(lambda: len(stub_node.processes()) == 3 + 2)
    assert stub_node.stop() == 0
    (death,) = stub_node.received("death", "agent")
    assert death["cause"]["kind"] == "killed-after-grace"
    assert not stub_node.processes()


def test_neither_a_deleted_pid_file_nor_a_thread_that_cannot_be_ended_prevents_the_exit(node: Nodes) -> None:
    stub_node = node(AGENT, {**WORKER, "run": ["thread"], "grace": 60.0, "release_time": 0.5}).up()
    eventually(lambda: stub_node.notes("run", "video-1"))
    (stub_node.run_directory / "master.pid").unlink()
    assert stub_node.status()["state"] == "running"
    assert stub_node.stop() == 0
    (death,) = stub_node.received("death", "agent")
    assert death["cause"]["status"] == 0, "its service had stopped in time"
    assert "Error" not in stub_node.log_text()


def test_the_second_signal_is_fast(node: Nodes) -> None:
    stub_node = node(AGENT, {**WORKER, "work": 60.0, "grace": 60.0}).up()
    stub_node.signal(signal.SIGTERM)
    eventually(lambda: stub_node.notes("stop", "video-1"))
    assert stub_node.status()["state"] == "stopping"
    assert stub_node.slot("video-1")["state"] == "DRAINING"
    assert stub_node.slot("agent")["state"] == "RUNNING"
    stub_node.signal(signal.SIGTERM)
    assert stub_node.wait() == 0
    assert [f["grace"] for f in stub_node.notes("stop", "video-1")] == [60.0, 0.0]
    assert [f["grace"] for f in stub_node.notes("stopped", "video-1")] == [0.0]


@pytest.mark.slow
def test_a_stopping_node_waits_for_its_agent_to_deal_with_the_deaths(node: Nodes) -> None:
    stub_node = node({**AGENT, "dies_of_a_death_in": 1}, {**WORKER, "work": 0.5}).up()
    assert stub_node.stop() == 0
    reports = stub_node.received("death", "agent")
    assert [d["slot"] for d in reports] == ["video-1", "video-1", "agent"], "exits are reported again to the new agent"


@pytest.mark.slow
def test_user_code_may_handle_other_signals_itself(node: Nodes) -> None:
    slots = [f"{how}-1" for how in ("loop", "handler")]
    stub_node = node(AGENT, *[{"name": slot, "run": [f"own_signals {slot[:-2]}"]} for slot in slots]).up()
    eventually(lambda: len(stub_node.notes("own signal")) == 2)
    pids = [stub_node.slot(slot)["pid"] for slot in slots]
    for pid in pids:
        os.kill(pid, signal.SIGUSR1)
    eventually(lambda: [len(stub_node.notes("own signal", slot)) for slot in slots] == [2, 2])
    assert not stub_node.notes("stop")
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    eventually(lambda: [f["grace"] for f in stub_node.notes("stop")] == [30.0, 30.0])


def test_a_killed_master_leaves_no_process_behind(node: Nodes) -> None:
    stubborn = {"grace": 0.5, "release_time": 0.5}
    stub_node = node(
        AGENT,
        {**WORKER, "work": 1.0},
        {"name": "blocked-1", "run": ["spawn", "spawn session", "block"], **stubborn},
        {"name": "threads-1", "run": ["thread"], **stubborn},
        {"name": "spawner-1", "run": ["spawn", "spawn session"]},
        {"name": "tunnel-1", "role": "command", "command": ["sleep", "600"]},
    ).up()
    eventually(lambda: stub_node.notes("blocks") and len(stub_node.notes("spawned")) == 4)
    assert len(stub_node.processes()) == 7 + 4
    stub_node.signal(signal.SIGKILL)
    eventually(lambda: not stub_node.processes())
    assert [f["grace"] for f in stub_node.notes("stopped", "video-1")] == [30.0], "it has finished its work before"


def test_a_master_killed_during_the_boot_leaves_no_process_behind(node: Nodes) -> None:
    stub_node = node(AGENT, {**WORKER, "start": ["sleep 60"]}).start()
    eventually(lambda: stub_node.notes("start", "video-1"))
    stub_node.signal(signal.SIGKILL)
    eventually(lambda: not stub_node.processes())
    stub_node.wait()


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
