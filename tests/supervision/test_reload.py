from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from peerd.runtime.process import exit_codes
from peerd.supervision import control_client
from tests.supervision.conftest import Nodes
from tests.supervision.nodes import AGENT, WORKER, StubNode, eventually, is_alive
from tests.supervision.test_crash import running_again

VIDEO = {"name": "video-1"}
AUDIO = {"name": "audio-1"}
PRINT = "import sys; sys.stdout.write(open(sys.argv[1]).read())"


def planned(stub_node: StubNode) -> StubNode:
    """Let the plan be read from a file whenever the node reloads."""
    file = stub_node.folder / "plan.json"
    stub_node.plan["planner"] = [sys.executable, "-c", PRINT, str(file)]
    file.write_text(json.dumps(stub_node.plan))
    return stub_node


def plan_anew(stub_node: StubNode, **kinds: dict[str, Any] | None) -> None:
    """Change kinds of the plan, or, given None, take them out."""
    for name, change in kinds.items():
        kind = next((kind for kind in stub_node.plan["kinds"] if kind["name"] == name), None)
        if change is None:
            stub_node.plan["kinds"].remove(kind)
        elif kind is None:
            stub_node.plan["kinds"].append({"name": name, **change})
        else:
            kind |= change
    (stub_node.folder / "plan.json").write_text(json.dumps(stub_node.plan))


def reload(stub_node: StubNode, *kinds: str, config_only: bool = False) -> dict[str, Any]:
    """Reload, wait until that is over, and return what became of it."""
    command = {"command": "reload", "kinds": list(kinds) or None, "config_only": config_only}
    number = control_client.send_command(stub_node.run_directory, command)["number"]

    def over() -> dict[str, Any] | None:
        (found,) = [one for one in stub_node.status()["reloads"] if one["number"] == number]
        return found if found["progress"] in ("done", "abandoned") else None

    result = eventually(over)
    assert result is not None
    return result


def pids(stub_node: StubNode) -> dict[str, int]:
    return {slot["name"]: slot["pid"] for slot in stub_node.status()["slots"]}


def test_a_reload_replaces_one_kind_new_process_first_and_touches_nothing_else(node: Nodes, tmp_path: Path) -> None:
    done = tmp_path / "done"
    stub_node = node(AGENT, {**VIDEO, "start": ["sleep 0.3"], "until": str(done)}, {"name": "video-2"}, AUDIO).up()
    before = pids(stub_node)
    assert reload(stub_node, "video") == {"number": 1, "progress": "done", "error": None, "kinds": {"video": "done"}}
    after = pids(stub_node)
    assert {name for name in before if before[name] != after[name]} == {"video-1", "video-2"}
    assert is_alive(before["video-1"]), "the old one still finishes its work"
    done.touch()
    death = eventually(lambda: [d for d in stub_node.received("death") if d["pid"] == before["video-1"]])[0]
    assert (death["expected"], death["cause"]["kind"]) == (True, "replaced")
    assert death["cause"]["text"] == "replaced by a reload (exit status 0)"
    ready = next(f["at"] + 0.3 for f in stub_node.notes("start", "video-1") if f["pid"] == after["video-1"])
    stopped_at = next(f["at"] for f in stub_node.notes("stop", "video-1") if f["pid"] == before["video-1"])
    assert ready <= stopped_at, "the new process was ready before the old one had to stop"
    assert stub_node.slot("video-1")["generation"] == 2


def test_sighup_replaces_every_process_but_the_master(node: Nodes) -> None:
    stub_node = node(AGENT, {"name": "manager", "role": "manager"}, VIDEO).up()
    before = pids(stub_node)
    stub_node.signal(signal.SIGHUP)
    eventually(lambda: [one["progress"] for one in stub_node.status()["reloads"]] == ["done"])
    assert not before.items() & pids(stub_node).items()
    starts = [f["slot"] for f in stub_node.notes("start")][3:]
    assert starts == ["video-1", "manager", "agent"], "the agent comes last"
    old = [f["at"] for f in stub_node.notes("stopped", "agent")]
    assert stub_node.notes("start", "agent")[1]["at"] > old[0], "there is one agent only"
    assert stub_node.notes("received", "agent")[-1]["message"].get("expected") is not False


def test_a_new_generation_that_does_not_boot_is_abandoned_and_the_old_one_continues(node: Nodes) -> None:
    stub_node = planned(node(AGENT, VIDEO, {"name": "video-2"}, AUDIO)).up()
    before = pids(stub_node)
    payload = stub_node.plan["kinds"][1]["payload"] | {"start": ["fail the new code is broken"]}
    plan_anew(stub_node, video={"payload": payload})
    result = reload(stub_node)
    after = pids(stub_node)
    assert result["progress"] == "abandoned"
    assert "the new code is broken" in result["kinds"]["video"]
    assert result["kinds"]["audio"] == "done", "another kind is not held up"
    assert (after["video-1"], after["video-2"]) == (before["video-1"], before["video-2"])
    assert after["audio-1"] != before["audio-1"]
    assert "the new code is broken" in stub_node.slot("video-1")["error"]
    assert stub_node.slot("video-1")["state"] == "RUNNING"
    assert [f["slot"] for f in stub_node.notes("start") if f["generation"] == 2 and f["slot"].startswith("video")] == [
        "video-1"
    ]
    pid = stub_node.kill("video-1")  # what runs by the old plan is replaced by the old plan
    running_again(stub_node, "video-1", pid)


def test_a_process_that_a_failed_reload_has_left_is_replaced_by_the_next_one(node: Nodes) -> None:
    stub_node = planned(node(AGENT, VIDEO, {"name": "video-2"})).up()
    before = pids(stub_node)
    slots = {"video-1": {}, "video-2": {"start": ["once fail a passing fault"]}}
    plan_anew(stub_node, video={"payload": stub_node.plan["kinds"][1]["payload"] | {"slots": slots}})
    assert reload(stub_node, config_only=True)["progress"] == "abandoned"
    between = pids(stub_node)
    assert {name for name in before if before[name] == between[name]} == {"agent", "video-2"}
    assert reload(stub_node, config_only=True)["kinds"] == {"video": "done"}
    after = pids(stub_node)
    assert {name for name in between if between[name] == after[name]} == {"agent", "video-1"}


def test_a_reload_follows_the_plan_and_touches_only_what_has_changed(node: Nodes) -> None:
    stub_node = planned(node(AGENT, VIDEO, {"name": "video-2"}, AUDIO, {"name": "text-1"})).up()
    before = pids(stub_node)
    new = {"entry": "stub_services:stub", "payload": stub_node.plan["kinds"][1]["payload"], "release_time": 1.0}
    plan_anew(stub_node, video={"processes": 3}, text=None, audio={"grace": 7.0}, mail=new)
    result = reload(stub_node, config_only=True)
    eventually(lambda: len(pids(stub_node)) == 6 and stub_node.slot("mail-1")["state"] == "RUNNING")
    eventually(lambda: stub_node.slot("video-3")["state"] == "RUNNING")
    after = pids(stub_node)
    assert result["kinds"] == {"text": "removed", "video": "3 processes", "mail": "added, 1 processes", "audio": "done"}
    assert list(after) == ["agent", "video-1", "video-2", "video-3", "audio-1", "mail-1"]
    assert {name for name in before if before[name] == after.get(name)} == {"agent", "video-1", "video-2"}


def test_a_plan_that_cannot_be_followed_changes_nothing(node: Nodes) -> None:
    stub_node = planned(node(AGENT, VIDEO)).up()
    before = pids(stub_node)
    for text, error in (
        ("no JSON at all", "the planner printed no plan"),
        (json.dumps({**stub_node.plan, "node": "other", "kinds": []}), "takes a restart"),
    ):
        (stub_node.folder / "plan.json").write_text(text)
        result = reload(stub_node)
        assert (result["progress"], error in result["error"]) == ("abandoned", True), result
        assert pids(stub_node) == before


def test_a_process_that_dies_while_its_successor_boots_is_followed_by_it(node: Nodes, tmp_path: Path) -> None:
    stub_node = node(AGENT, {**VIDEO, "replace": ["wait 2"]}).up()
    old = stub_node.slot("video-1")["pid"]
    control_client.send_command(stub_node.run_directory, {"command": "reload", "kinds": ["video"]})
    eventually(lambda: stub_node.slot("video-1")["replacing"])
    os.kill(old, signal.SIGKILL)
    running_again(stub_node, "video-1", old)
    assert [f["generation"] for f in stub_node.notes("start", "video-1")] == [1, 2], "no third one was needed"
    assert stub_node.status()["reloads"][0]["progress"] == "done"


def test_scaling_adds_and_drains_slots_and_leaves_the_others_alone(node: Nodes) -> None:
    stub_node = node(AGENT, VIDEO, AUDIO).up()
    before = pids(stub_node)
    scale = {"command": "scale", "kind": "video", "processes": 3}
    assert control_client.send_command(stub_node.run_directory, scale) == {"kind": "video", "before": 1, "processes": 3}
    eventually(lambda: [s["state"] for s in stub_node.status()["slots"]] == ["RUNNING"] * 5)
    control_client.send_command(stub_node.run_directory, scale | {"processes": 1})
    eventually(lambda: pids(stub_node) == before)
    scaled_down = ["scaled down (exit status 0)"] * 2
    eventually(lambda: [d["cause"]["text"] for d in stub_node.received("death")] == scaled_down)
    control_client.send_command(stub_node.run_directory, scale | {"processes": 0})
    eventually(lambda: "video-1" not in pids(stub_node))
    control_client.send_command(stub_node.run_directory, scale | {"processes": 1})
    eventually(lambda: stub_node.slot("video-1")["state"] == "RUNNING")


def test_a_scaled_number_of_processes_stays_until_the_plan_has_another_number(node: Nodes) -> None:
    stub_node = planned(node(AGENT, VIDEO)).up()
    control_client.send_command(stub_node.run_directory, {"command": "scale", "kind": "video", "processes": 3})
    reload(stub_node, "video")
    assert list(pids(stub_node)) == ["agent", "video-1", "video-2", "video-3"]
    plan_anew(stub_node, video={"processes": 2})
    reload(stub_node, config_only=True)
    eventually(lambda: list(pids(stub_node)) == ["agent", "video-1", "video-2"])


def test_a_stop_during_a_reload_leaves_nothing_behind(node: Nodes) -> None:
    stub_node = node(AGENT, {**VIDEO, "replace": ["wait 2"]}).up()
    control_client.send_command(stub_node.run_directory, {"command": "reload", "kinds": None})
    eventually(lambda: stub_node.slot("video-1")["replacing"])
    assert stub_node.stop() == exit_codes.OK


def test_commands_are_replaced_old_one_first(node: Nodes) -> None:
    stub_node = node(AGENT, {"name": "tunnel-1", "role": "command", "command": ["sleep", "600"]}).up()
    before = pids(stub_node)
    assert reload(stub_node, "tunnel")["progress"] == "done"
    assert pids(stub_node)["tunnel-1"] != before["tunnel-1"]
    assert not is_alive(before["tunnel-1"])


def test_two_reloads_at_once_follow_each_other_and_leave_one_process_in_each_slot(node: Nodes) -> None:
    stub_node = node(AGENT, WORKER, {"name": "video-2"}).up()
    before = pids(stub_node)
    for _ in range(2):
        control_client.send_command(stub_node.run_directory, {"command": "reload", "kinds": ["video"]})
    eventually(lambda: [one["progress"] for one in stub_node.status()["reloads"]] == ["done", "done"])
    eventually(lambda: len(stub_node.processes()) == 1 + len(before))
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
