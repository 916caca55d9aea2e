from __future__ import annotations

import itertools
import os
import signal
from pathlib import Path

import pytest

from tests.supervision.conftest import Nodes
from tests.supervision.nodes import AGENT, WORKER, StubNode, eventually, is_alive


def running_again(stub_node: StubNode, slot: str, old: int) -> int:
    def its_pid() -> int | None:
        now = stub_node.slot(slot)
        return now["pid"] if now["state"] == "RUNNING" and now["pid"] != old else None

    return eventually(its_pid, message=f"{slot} runs again") or 0


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


def test_each_way_to_end_is_reported_with_its_cause_and_the_process_replaced(node: Nodes, tmp_path: Path) -> None:
    may_end = tmp_path / "up"  # during the boot it would end the node
    ways: dict[str, tuple[list[str], tuple[str, int | None], str]] = {
        "raises": (["once fail"], ("exit", 70), "exit status 70: RuntimeError: it is broken"),
        "exits": (["sleep 0.3", "once exit 0"], ("exit", 70), "SystemExit"),
        "recycled": (["sleep 0.2", "once recycle"], ("recycled", 75), "recycled (exit status 75): had 1000 tasks"),
        "babbles": (["sleep 0.2", "once babble"], ("signal", None), "sent an invalid frame"),
        "hangs": (  # killed not because it is silent, which takes longer
            ["once hang_at_the_end", "once fail"],
            ("signal", None),
            "killed by SIGKILL, since it did not end by itself: RuntimeError: it is broken",
        ),
        "late": (["once late_signal", "once recycle"], ("recycled", 75), "recycled (exit status 75): had 1000 tasks"),
        "leaves": (["leave"], ("exit", 0), "exit status 0"),
    }
    slots = [
        {"name": f"{way}-1", "run": [f"until {may_end}", *run], "silent_after": 600.0}
        for way, (run, _, _) in ways.items()
    ]
    stub_node = node(AGENT, *slots, {"name": "leaves-2"}).up()
    may_end.touch()
    eventually(lambda: len(stub_node.received("death", "agent")) == len(ways))
    deaths = {death["slot"].removesuffix("-1"): death for death in stub_node.received("death", "agent")}
    assert deaths.keys() == ways.keys()
    for way, (_, (kind, status), text) in ways.items():
        cause = deaths[way]["cause"]
        assert text in cause["text"], way
        assert cause["kind"] == kind or way == "babbles", (way, cause)
        assert cause["status"] == status or way == "babbles", (way, cause)
        if way != "leaves":
            running_again(stub_node, f"{way}-1", deaths[way]["pid"])
    stub_node.kill("leaves-2")
    eventually(lambda: stub_node.slot("leaves-2")["restarts"] == 1)
    assert stub_node.slot("leaves-1")["state"] == "EXITED", "what leaves with status 0 is not replaced"
    assert len(stub_node.notes("start", "leaves-1")) == 1


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_replacement_that_dies_in_its_boot_is_tried_again(node: Nodes) -> None:
    stub_node = node(AGENT, {**WORKER, "entry": "stub_services:weak_after_first_boot"}).up()
    pid = stub_node.kill("video-1")
    eventually(lambda: stub_node.slot("video-1")["restarts"] >= 3, message="it was tried again and again")
    running_again(stub_node, "video-1", pid)
    causes = [d["cause"]["kind"] for d in stub_node.received("death", "agent")]
    assert causes == ["signal", "boot-failed", "boot-failed"]
    assert stub_node.status()["state"] == "running"


@pytest.mark.slow
def test_a_boot_that_reports_what_it_waits_for_has_its_timeout_again(node: Nodes) -> None:
    stub_node = node(AGENT, {**WORKER, "entry": "stub_services:waits_when_it_replaces", "boot_timeout": 1.7}).up()
    pid = stub_node.kill("video-1")
    eventually(
        lambda: stub_node.slot("video-1")["error"] == "the database does not answer", message="status has the reason"
    )
    running_again(stub_node, "video-1", pid)
    assert (stub_node.slot("video-1")["generation"], stub_node.slot("video-1")["error"]) == (2, None)


def test_a_tainted_process_is_replaced_at_once_finishes_its_work_and_leaves_with_70(
    node: Nodes, tmp_path: Path
) -> None:
    done = tmp_path / "done"
    ways = ("taint", "taint_task", "taint_thread")
    slots = [{"name": f"{way}-1", "run": ["sleep 0.3", f"once {way}"], "until": str(done)} for way in ways]
    stub_node = node(AGENT, *slots).up()
    tainted = {way: eventually(lambda: stub_node.slot(f"{way}-1")["leaving"])[0]["pid"] for way in ways}  # noqa: B023
    new = {way: running_again(stub_node, f"{way}-1", tainted[way]) for way in ways}
    assert all(is_alive(pid) for pid in tainted.values()), "each replacement is there before the tainted one has left"
    done.touch()
    eventually(lambda: len(stub_node.received("death", "agent")) == len(ways))
    for death in stub_node.received("death", "agent"):
        assert (death["cause"]["kind"], death["cause"]["status"], death["expected"]) == ("tainted", 70, False)
        finished = [fact["kind"] for fact in stub_node.notes(slot=death["slot"]) if fact["pid"] == death["pid"]]
        assert finished[-3:] == ["quiet", "stop", "stopped"]
    assert {way: stub_node.slot(f"{way}-1")["pid"] for way in ways} == new


def test_an_exception_never_ends_the_agent(node: Nodes) -> None:
    stub_node = node({**AGENT, "run": ["sleep 0.2", "taint_thread", "taint_task", "sleep 0.5", "taint"]}).up()
    eventually(lambda: stub_node.log_text().count("alert of agent") == 3, message="each was reported")
    assert stub_node.slot("agent")["state"] == "RUNNING"
    assert stub_node.slot("agent")["restarts"] == 0


@pytest.mark.slow
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


def test_a_process_that_another_program_stops_finishes_its_work_and_is_replaced(node: Nodes) -> None:
    stub_node = node(AGENT, {**WORKER, "work": 0.3}).up()
    for slot in ("video-1", "agent"):
        pid = stub_node.slot(slot)["pid"]
        os.kill(pid, signal.SIGTERM)
        running_again(stub_node, slot, pid)
        death = eventually(lambda: [one for one in stub_node.received("death", "agent") if one["pid"] == pid])[0]  # noqa: B023
        assert death["cause"]["text"] == "recycled (exit status 75): it was sent SIGTERM or SIGINT"
        assert [fact["grace"] for fact in stub_node.notes("stopped", slot) if fact["pid"] == pid] == [30.0]


def test_a_command_slot_is_supervised_the_same_way(node: Nodes) -> None:
    stub_node = node(AGENT, {"name": "tunnel-1", "role": "command", "command": ["sleep", "600"]}).up()
    pid = stub_node.kill("tunnel-1")
    running_again(stub_node, "tunnel-1", pid)
    (death,) = eventually(lambda: stub_node.received("death", "agent"))
    assert (death["role"], death["cause"]["text"]) == ("command", "killed by SIGKILL")
    assert stub_node.stop() == 0
