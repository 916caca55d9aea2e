"""Processes that die, hang or fail again and again, and what replaces them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.supervision.conftest import Nodes
from tests.supervision.nodes import AGENT, WORKER, StubNode, eventually, is_alive


def running_again(stub_node: StubNode, slot: str, old: int) -> int:
    """Wait until a slot runs another process; its id."""

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
    eventually(lambda: len(stub_node.received("ready", "video-1")) == 2)
    video = stub_node.slot("video-1")
    assert (video["generation"], video["restarts"]) == (2, 1)
    assert video["last_cause"]["text"] == "killed by SIGKILL"


def test_workers_are_replaced_as_often_as_they_die_and_when_all_do_at_once(node: Nodes) -> None:
    stub_node = node(AGENT, WORKER, {"name": "video-2"}, {"name": "audio-1"}).up()
    agent = stub_node.slot("agent")["pid"]
    for _ in range(2):
        running_again(stub_node, "video-1", stub_node.kill("video-1"))
    for slot in ("video-1", "video-2", "audio-1"):
        stub_node.kill(slot)
    eventually(lambda: [slot["restarts"] for slot in stub_node.status()["slots"]] == [0, 3, 1, 1])
    eventually(lambda: {slot["state"] for slot in stub_node.status()["slots"]} == {"RUNNING"})
    assert (stub_node.slot("agent")["pid"], stub_node.status()["state"]) == (agent, "running")


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


@pytest.mark.slow
def test_a_boot_that_reports_what_it_waits_for_has_its_timeout_again(node: Nodes) -> None:
    stub_node = node(AGENT, {**WORKER, "replace": ["wait 2"], "boot_timeout": 1.7}).up()
    pid = stub_node.kill("video-1")
    eventually(lambda: stub_node.slot("video-1")["error"] == "the database does not answer")
    running_again(stub_node, "video-1", pid)
    assert (stub_node.slot("video-1")["generation"], stub_node.slot("video-1")["error"]) == (2, None)


def test_a_tainted_process_is_replaced_at_once_finishes_its_work_and_leaves_with_70(
    node: Nodes, tmp_path: Path
) -> None:
    ready, done = tmp_path / "ready", tmp_path / "done"
    ways = ("taint", "taint_task", "taint_thread")
    slots = [{"name": f"{way}-1", "run": [f"until {ready}", f"once {way}"], "until": str(done)} for way in ways]
    stub_node = node(AGENT, *slots).up()
    ready.touch()
    tainted = {way: eventually(lambda: stub_node.slot(f"{way}-1")["leaving"])[0]["pid"] for way in ways}  # noqa: B023
    new = {way: running_again(stub_node, f"{way}-1", tainted[way]) for way in ways}
    assert all(is_alive(pid) for pid in tainted.values()), "each replacement is there before the tainted one has left"
    done.touch()
    eventually(lambda: len(stub_node.received("death", "agent")) == len(ways))
    for death in stub_node.received("death", "agent"):
        assert (death["cause"]["kind"], death["cause"]["status"], death["expected"]) == ("tainted", 70, False)
        finished = [fact["kind"] for fact in stub_node.notes(slot=death["slot"]) if fact["pid"] == death["pid"]]
        assert finished[-2:] == ["stop", "stopped"]
    assert {way: stub_node.slot(f"{way}-1")["pid"] for way in ways} == new


def test_an_exception_never_ends_the_agent(node: Nodes) -> None:
    stub_node = node({**AGENT, "run": ["sleep 0.2", "taint_thread", "taint_task", "sleep 0.5", "taint"]}).up()
    eventually(lambda: stub_node.log_text().count("alert of agent") == 3)
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


def test_an_agent_that_keeps_failing_is_tried_again_and_the_workers_go_on(node: Nodes) -> None:
    stub_node = node({**AGENT, "weak": (2, 4)}, WORKER).up()
    worker = stub_node.slot("video-1")["pid"]
    killed = stub_node.kill("agent")
    eventually(lambda: stub_node.slot("agent")["restarts"] >= 3)
    agent = running_again(stub_node, "agent", killed)
    eventually(lambda: [ready for ready in stub_node.notes("received", "agent") if ready["pid"] == agent])
    assert (stub_node.slot("video-1")["pid"], stub_node.slot("video-1")["restarts"]) == (worker, 0)
    assert stub_node.status()["state"] == "running"


# ---------------------------------------------------------------- hangs


def test_the_status_shows_the_delay_of_an_event_loop_and_how_long_a_process_has_been_silent(node: Nodes) -> None:
    stub_node = node(AGENT, WORKER, {"name": "any-1", "role": "command", "command": ["sleep", "600"]}).up()
    measurements = eventually(lambda: stub_node.slot("video-1")["vitals"])
    assert measurements["lag"] < 2.0
    assert measurements["in_flight"] == 0
    pid = stub_node.slot("video-1")["pid"]
    eventually(lambda: stub_node.slot("video-1")["silent_for"] < 2.5)
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: stub_node.slot("video-1")["silent_for"] > 3.0)
    assert stub_node.slot("any-1")["silent_for"] is None, "which has no way to say anything"
    os.kill(pid, signal.SIGCONT)
    eventually(lambda: stub_node.slot("video-1")["silent_for"] < 2.5)


def test_a_frozen_process_is_killed_and_replaced_the_agent_too(node: Nodes) -> None:
    stub_node = node({**AGENT, "silent_after": 3.0}, {**WORKER, "silent_after": 3.0}).up()
    pid = stub_node.slot("video-1")["pid"]
    os.kill(pid, signal.SIGSTOP)
    worker = running_again(stub_node, "video-1", pid)
    (death,) = eventually(lambda: stub_node.received("death", "agent"))
    assert (death["cause"]["kind"], death["expected"]) == ("silent", False)
    (alert,) = stub_node.received("alert", "agent")
    assert (alert["alert"], alert["slot"]) == ("silent", "video-1")
    agent = stub_node.slot("agent")["pid"]
    os.kill(agent, signal.SIGSTOP)
    running_again(stub_node, "agent", agent)
    assert stub_node.slot("video-1")["pid"] == worker


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
    stub_node = node(AGENT, {**WORKER, "weak": (2, 12), "backoff_maximum": 0.3}).up()
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
