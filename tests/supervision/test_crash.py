from __future__ import annotations

import itertools
import os
import signal
from pathlib import Path

import pytest

from tests.supervision.conftest import Nodes
from tests.supervision.nodes import StubNode, eventually, is_alive

AGENT = {"name": "agent", "role": "agent"}
WORKER = {"name": "video-1"}


def running_again(stub_node: StubNode, slot: str, old: int) -> int:
    def its_pid() -> int | None:
        now = stub_node.slot(slot)
        return now["pid"] if now["state"] == "RUNNING" and now["pid"] != old else None

    return eventually(its_pid, message=f"{slot} runs again") or 0


def test_a_worker_that_crashed_and_does_not_end_is_killed_and_replaced(node: Nodes) -> None:
    """Not because it is silent, which takes longer."""
    stub_node = node(AGENT, {**WORKER, "run": ["once hang_at_the_end", "once fail"], "silent_after": 600.0}).up()
    (death,) = eventually(lambda: stub_node.received("death", "agent"))
    assert death["cause"] == {
        "kind": "signal",
        "status": None,
        "signal": "SIGKILL",
        "text": "killed by SIGKILL, since it did not end by itself: RuntimeError: it is broken",
    }
    running_again(stub_node, "video-1", death["pid"])
    assert stub_node.stop() == 0


def test_a_killed_worker_is_replaced_at_once_and_its_exit_is_reported(node: Nodes) -> None:
    stub_node = node(AGENT, {**WORKER, "backoff_initial": 60.0}).up()
    eventually(lambda: stub_node.received("ready", "video-1"))
    pid = stub_node.kill("video-1")
    running_again(stub_node, "video-1", pid)
    (death,) = eventually(lambda: stub_node.received("death", "agent"))
    assert death == {
        "type": "death",
        "id": 1,
        "slot": "video-1",
        "kind": "video",
        "role": "worker",
        "pid": pid,
        "identity": {"process_id": pid * 10},
        "expected": False,
        "cause": {"kind": "signal", "status": None, "signal": "SIGKILL", "text": "killed by SIGKILL"},
    }
    eventually(lambda: len(stub_node.received("ready", "video-1")) == 2, message="the new one is notified")
    video = stub_node.slot("video-1")
    assert (video["generation"], video["restarts"]) == (2, 1)
    assert video["last_cause"]["text"] == "killed by SIGKILL"


def test_an_exception_out_of_run_is_a_crash_with_its_text(node: Nodes) -> None:
    stub_node = node(AGENT, {**WORKER, "run": ["once fail"]}).up()
    (death,) = eventually(lambda: stub_node.received("death", "agent"))
    assert death["cause"]["kind"] == "exit"
    assert death["cause"]["text"] == "exit status 70: RuntimeError: it is broken"
    running_again(stub_node, "video-1", death["pid"])


def test_sys_exit_in_user_code_is_a_crash(node: Nodes) -> None:
    stub_node = node(AGENT, {**WORKER, "run": ["sleep 0.3", "once exit 0"]}).up()
    (death,) = eventually(lambda: stub_node.received("death", "agent"))
    assert death["cause"]["status"] == 70
    running_again(stub_node, "video-1", death["pid"])


def test_exits_are_reported_to_each_new_agent_until_one_acknowledges_them(node: Nodes) -> None:
    stub_node = node({**AGENT, "unacknowledged": 1}, WORKER).up()
    pid = stub_node.kill("video-1")
    eventually(lambda: stub_node.received("death"))
    old = stub_node.kill("agent")
    running_again(stub_node, "agent", old)
    deaths = eventually(lambda: [d for d in stub_node.received("death")[1:] if len(stub_node.received("death")) >= 3])
    assert [(d["id"], d["pid"]) for d in deaths] == [(1, pid), (2, old)]
    again = stub_node.kill("agent")
    running_again(stub_node, "agent", again)
    eventually(lambda: [d for d in stub_node.received("death") if d["pid"] == again])
    assert [d["id"] for d in stub_node.received("death")] == [1, 1, 2, 3], "acknowledged exits are not reported again"


def test_a_process_that_leaves_with_status_0_is_not_replaced(node: Nodes) -> None:
    stub_node = node(AGENT, {**WORKER, "run": ["leave"]}, {"name": "video-2"}).up()
    eventually(lambda: stub_node.slot("video-1")["state"] == "EXITED")
    (death,) = eventually(lambda: stub_node.received("death", "agent"))
    assert (death["cause"]["kind"], death["cause"]["status"]) == ("exit", 0)
    stub_node.kill("video-2")
    eventually(lambda: stub_node.slot("video-2")["restarts"] == 1)
    assert stub_node.slot("video-1")["state"] == "EXITED"
    assert len(stub_node.notes("start", "video-1")) == 1


def test_an_agent_that_leaves_is_replaced_all_the_same(node: Nodes) -> None:
    stub_node = node({**AGENT, "run": ["sleep 0.3", "once leave"]}).up()
    eventually(lambda: stub_node.slot("agent")["restarts"] == 1)


def test_a_slot_that_keeps_crashing_backs_off_and_recovers(node: Nodes) -> None:
    stub_node = node(AGENT, {**WORKER, "run": ["sleep 0.1", "once crash"], "run-crash": 4, "backoff_initial": 0.3}).up()
    eventually(lambda: stub_node.slot("video-1")["backoff_until"] and stub_node.slot("video-1")["state"] == "BACKOFF")
    eventually(lambda: stub_node.slot("video-1")["restarts"] == 4)
    eventually(lambda: stub_node.slot("video-1")["state"] == "RUNNING")
    starts = [f["at"] for f in stub_node.notes("start", "video-1")]
    waits = [later - earlier for earlier, later in itertools.pairwise(starts)]
    assert waits[3] >= 0.3 * 2**2 * 0.8, waits


def test_a_replacement_that_dies_in_its_boot_is_tried_again(node: Nodes) -> None:
    stub_node = node(AGENT, {**WORKER, "entry": "stub_services:weak_after_first_boot"}).up()
    pid = stub_node.kill("video-1")
    eventually(lambda: stub_node.slot("video-1")["restarts"] >= 3, message="it was tried again and again")
    running_again(stub_node, "video-1", pid)
    causes = [d["cause"]["kind"] for d in stub_node.received("death", "agent")]
    assert causes == ["signal", "boot-failed", "boot-failed"]
    assert stub_node.status()["state"] == "running"


def test_a_boot_that_reports_what_it_waits_for_has_its_timeout_again(node: Nodes) -> None:
    stub_node = node(AGENT, {**WORKER, "entry": "stub_services:waits_when_it_replaces", "boot_timeout": 1.7}).up()
    pid = stub_node.kill("video-1")
    eventually(
        lambda: stub_node.slot("video-1")["error"] == "the database does not answer", message="status has the reason"
    )
    running_again(stub_node, "video-1", pid)
    assert (stub_node.slot("video-1")["generation"], stub_node.slot("video-1")["error"]) == (2, None)


@pytest.mark.parametrize("how", ["taint", "taint_task", "taint_thread"])
def test_a_tainted_process_is_replaced_at_once_finishes_its_work_and_leaves_with_70(
    node: Nodes, tmp_path: Path, how: str
) -> None:
    done = tmp_path / "done"
    stub_node = node(AGENT, {**WORKER, "run": ["sleep 0.3", f"once {how}"], "until": str(done)}).up()
    tainted = eventually(lambda: stub_node.slot("video-1")["leaving"])[0]["pid"]
    pid = running_again(stub_node, "video-1", tainted)
    assert is_alive(tainted), "the replacement is there before the tainted one has left"
    done.touch()
    (death,) = eventually(lambda: stub_node.received("death", "agent"))
    assert (death["pid"], death["cause"]["kind"], death["cause"]["status"]) == (tainted, "tainted", 70)
    assert death["expected"] is False
    finished = [f["kind"] for f in stub_node.notes(slot="video-1") if f["pid"] == tainted]
    assert finished[-3:] == ["quiet", "stop", "stopped"]
    assert stub_node.slot("video-1")["pid"] == pid


def test_an_exception_never_ends_the_agent(node: Nodes) -> None:
    stub_node = node({**AGENT, "run": ["sleep 0.2", "taint_thread", "taint_task", "sleep 0.5", "taint"]}).up()
    eventually(lambda: stub_node.log_text().count("alert of agent") == 3, message="each was reported")
    assert stub_node.slot("agent")["state"] == "RUNNING"
    assert stub_node.slot("agent")["restarts"] == 0


def test_recycling_a_process_is_no_failure(node: Nodes) -> None:
    stub_node = node(AGENT, {**WORKER, "run": ["sleep 0.2", "once recycle"], "work": 0.5}).up()
    (death,) = eventually(lambda: stub_node.received("death", "agent"))
    assert (death["cause"]["status"], death["cause"]["text"]) == (75, "recycled (exit status 75): had 1000 tasks")
    running_again(stub_node, "video-1", death["pid"])


def test_a_program_that_cannot_be_started_is_tried_again_and_again(node: Nodes, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    tunnel = {"name": "tunnel-1", "role": "command", "command": ["sleep", "600"], "backoff_initial": 0.1}
    stub_node = node(tunnel, project_directory=str(folder)).up()
    folder.rename(tmp_path / "away")
    stub_node.kill("tunnel-1")
    eventually(lambda: "cannot be started" in (stub_node.slot("tunnel-1")["error"] or ""))
    assert stub_node.status()["state"] == "running"
    (tmp_path / "away").rename(folder)
    eventually(lambda: stub_node.slot("tunnel-1")["state"] == "RUNNING")


def test_a_child_that_sends_what_is_no_frame_is_killed_and_replaced(node: Nodes) -> None:
    stub_node = node(AGENT, {**WORKER, "run": ["sleep 0.2", "once babble"]}).up()
    (death,) = eventually(lambda: stub_node.received("death", "agent"))
    assert "sent an invalid frame" in death["cause"]["text"]
    running_again(stub_node, "video-1", death["pid"])


@pytest.mark.parametrize("how", ["spawn", "spawn session"])
def test_what_a_dead_worker_has_started_dies_with_it(node: Nodes, how: str) -> None:
    stub_node = node(AGENT, {**WORKER, "run": [how]}, {"name": "video-2", "run": [how]}).up()
    (mine,) = eventually(lambda: stub_node.notes("spawned", "video-1"))
    (others,) = eventually(lambda: stub_node.notes("spawned", "video-2"))
    stub_node.kill("video-1")
    eventually(lambda: not is_alive(mine["program"]))
    assert is_alive(others["program"])


@pytest.mark.parametrize("slot", ["video-1", "agent"])
def test_a_process_that_another_program_stops_finishes_its_work_and_is_replaced(node: Nodes, slot: str) -> None:
    stub_node = node(AGENT, {**WORKER, "work": 0.3}).up()
    pid = stub_node.slot(slot)["pid"]
    os.kill(pid, signal.SIGTERM)
    running_again(stub_node, slot, pid)
    death = eventually(lambda: [d for d in stub_node.received("death", "agent") if d["pid"] == pid])[0]
    assert death["cause"]["text"] == "recycled (exit status 75): it was sent SIGTERM or SIGINT"
    assert [f["grace"] for f in stub_node.notes("stopped", slot) if f["pid"] == pid] == [30.0]


def test_a_command_slot_is_supervised_the_same_way(node: Nodes) -> None:
    stub_node = node(AGENT, {"name": "tunnel-1", "role": "command", "command": ["sleep", "600"]}).up()
    pid = stub_node.kill("tunnel-1")
    running_again(stub_node, "tunnel-1", pid)
    (death,) = eventually(lambda: stub_node.received("death", "agent"))
    assert (death["role"], death["cause"]["text"]) == ("command", "killed by SIGKILL")
    assert stub_node.stop() == 0
