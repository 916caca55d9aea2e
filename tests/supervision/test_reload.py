from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from peerd.runtime.process import exit_codes
from peerd.supervision.control import control_client
from tests.supervision.conftest import Nodes
from tests.supervision.nodes import ToyNode, eventually, is_alive
from tests.supervision.test_crash import running_again

AGENT = {"name": "agent", "role": "agent"}
VIDEO = {"name": "video-1"}
AUDIO = {"name": "audio-1"}
PRINT = "import sys; sys.stdout.write(open(sys.argv[1]).read())"


def planned(toys: ToyNode) -> ToyNode:
    """Let the plan be read from a file whenever the node reloads."""
    file = toys.folder / "plan.json"
    toys.plan["planner"] = [sys.executable, "-c", PRINT, str(file)]
    file.write_text(json.dumps(toys.plan))
    return toys


def plan_anew(toys: ToyNode, **kinds: dict[str, Any] | None) -> None:
    """Change kinds of the plan, or, given None, take them out."""
    for name, change in kinds.items():
        kind = next((kind for kind in toys.plan["kinds"] if kind["name"] == name), None)
        if change is None:
            toys.plan["kinds"].remove(kind)
        elif kind is None:
            toys.plan["kinds"].append({"name": name, **change})
        else:
            kind |= change
    (toys.folder / "plan.json").write_text(json.dumps(toys.plan))


def reload(toys: ToyNode, *kinds: str, config_only: bool = False) -> dict[str, Any]:
    """Reload, wait until that is over, and return what became of it."""
    command = {"command": "reload", "kinds": list(kinds) or None, "config_only": config_only}
    number = control_client.ask(toys.run_directory, command)["number"]

    def over() -> dict[str, Any] | None:
        (found,) = [one for one in toys.status()["reloads"] if one["number"] == number]
        return found if found["progress"] in ("done", "abandoned") else None

    result = eventually(over, message="the reload is over")
    assert result is not None
    return result


def pids(toys: ToyNode) -> dict[str, int]:
    return {slot["name"]: slot["pid"] for slot in toys.status()["slots"]}


def test_a_reload_replaces_one_kind_new_process_first_and_touches_nothing_else(node: Nodes, tmp_path: Path) -> None:
    done = tmp_path / "done"
    toys = node(AGENT, {**VIDEO, "start": ["sleep 0.3"], "until": str(done)}, {"name": "video-2"}, AUDIO).up()
    before = pids(toys)
    assert reload(toys, "video") == {"number": 1, "progress": "done", "error": None, "kinds": {"video": "done"}}
    after = pids(toys)
    assert {name for name in before if before[name] != after[name]} == {"video-1", "video-2"}
    assert is_alive(before["video-1"]), "the old one still finishes its work"
    done.touch()
    death = eventually(lambda: [d for d in toys.received("death") if d["pid"] == before["video-1"]])[0]
    assert (death["expected"], death["cause"]["kind"]) == (True, "replaced")
    assert death["cause"]["text"] == "replaced by a reload (exit status 0)"
    ready = next(f["at"] + 0.3 for f in toys.facts("start", "video-1") if f["pid"] == after["video-1"])
    asked = next(f["at"] for f in toys.facts("quiet", "video-1") if f["pid"] == before["video-1"])
    assert ready <= asked, "the new one was ready before the old one was asked to stop"
    assert toys.slot("video-1")["generation"] == 2


def test_sighup_replaces_every_process_but_the_master(node: Nodes) -> None:
    toys = node(AGENT, {"name": "manager", "role": "manager"}, VIDEO).up()
    before = pids(toys)
    toys.signal(signal.SIGHUP)
    eventually(lambda: [one["progress"] for one in toys.status()["reloads"]] == ["done"])
    assert not before.items() & pids(toys).items()
    starts = [f["slot"] for f in toys.facts("start")][3:]
    assert starts == ["video-1", "manager", "agent"], "the agent comes last"
    old = [f["at"] for f in toys.facts("stopped", "agent")]
    assert toys.facts("start", "agent")[1]["at"] > old[0], "there is one agent only"
    assert toys.facts("received", "agent")[-1]["message"].get("expected") is not False


def test_a_new_generation_that_does_not_boot_is_abandoned_and_the_old_one_goes_on(node: Nodes) -> None:
    toys = planned(node(AGENT, VIDEO, {"name": "video-2"}, AUDIO)).up()
    before = pids(toys)
    payload = toys.plan["kinds"][1]["payload"] | {"start": ["fail the new code is broken"]}
    plan_anew(toys, video={"payload": payload})
    result = reload(toys)
    after = pids(toys)
    assert result["progress"] == "abandoned"
    assert "the new code is broken" in result["kinds"]["video"]
    assert result["kinds"]["audio"] == "done", "another kind is not held up"
    assert (after["video-1"], after["video-2"]) == (before["video-1"], before["video-2"])
    assert after["audio-1"] != before["audio-1"]
    assert "the new code is broken" in toys.slot("video-1")["error"]
    assert toys.slot("video-1")["state"] == "RUNNING"
    assert [f["slot"] for f in toys.facts("start") if f["generation"] == 2 and f["slot"].startswith("video")] == [
        "video-1"
    ]
    pid = toys.kill("video-1")  # what runs by the old plan is replaced by the old plan
    running_again(toys, "video-1", pid)


def test_a_reload_follows_the_plan_and_touches_only_what_has_changed(node: Nodes) -> None:
    toys = planned(node(AGENT, VIDEO, {"name": "video-2"}, AUDIO, {"name": "text-1"})).up()
    before = pids(toys)
    new = {"entry": "stub_services:toy", "payload": toys.plan["kinds"][1]["payload"], "give_back": 1.0}
    plan_anew(toys, video={"processes": 3}, text=None, audio={"grace": 7.0}, mail=new)
    result = reload(toys, config_only=True)
    eventually(lambda: len(pids(toys)) == 6 and toys.slot("mail-1")["state"] == "RUNNING")
    eventually(lambda: toys.slot("video-3")["state"] == "RUNNING")
    after = pids(toys)
    assert result["kinds"] == {"text": "removed", "video": "3 processes", "mail": "added, 1 processes", "audio": "done"}
    assert list(after) == ["agent", "video-1", "video-2", "video-3", "audio-1", "mail-1"]
    assert {name for name in before if before[name] == after.get(name)} == {"agent", "video-1", "video-2"}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("no JSON at all", "the planner printed no plan"),
        ('{"node": "other", "run_directory": "RUN", "project_directory": "PROJECT", "kinds": []}', "takes a restart"),
    ],
)
def test_a_plan_that_cannot_be_followed_changes_nothing(node: Nodes, change: str, error: str) -> None:
    toys = planned(node(AGENT, VIDEO)).up()
    before = pids(toys)
    text = change.replace("RUN", str(toys.run_directory)).replace("PROJECT", toys.plan["project_directory"])
    (toys.folder / "plan.json").write_text(text)
    result = reload(toys)
    assert result["progress"] == "abandoned"
    assert error in result["error"]
    assert pids(toys) == before


def test_a_kind_that_there_is_not_is_refused_with_those_that_there_are(node: Nodes) -> None:
    toys = node(AGENT, VIDEO).up()
    assert reload(toys, "vidoe")["error"] == "there is no vidoe; only agent, video"


def test_a_process_that_dies_while_its_successor_boots_is_followed_by_it(node: Nodes, tmp_path: Path) -> None:
    toys = node(AGENT, {**VIDEO, "entry": "stub_services:waits_when_it_replaces"}).up()
    old = toys.slot("video-1")["pid"]
    control_client.ask(toys.run_directory, {"command": "reload", "kinds": ["video"]})
    eventually(lambda: toys.slot("video-1")["replacing"])
    os.kill(old, signal.SIGKILL)
    running_again(toys, "video-1", old)
    assert [f["generation"] for f in toys.facts("start", "video-1")] == [1, 2], "no third one was needed"
    assert toys.status()["reloads"][0]["progress"] == "done"


def test_scaling_adds_and_drains_slots_and_leaves_the_others_alone(node: Nodes) -> None:
    toys = node(AGENT, VIDEO, AUDIO).up()
    before = pids(toys)
    scale = {"command": "scale", "kind": "video", "processes": 3}
    assert control_client.ask(toys.run_directory, scale) == {"kind": "video", "before": 1, "processes": 3}
    eventually(lambda: [s["state"] for s in toys.status()["slots"]] == ["RUNNING"] * 5)
    control_client.ask(toys.run_directory, scale | {"processes": 1})
    eventually(lambda: pids(toys) == before, message="the others were left alone")
    scaled_down = ["scaled down (exit status 0)"] * 2
    eventually(lambda: [d["cause"]["text"] for d in toys.received("death")] == scaled_down)
    control_client.ask(toys.run_directory, scale | {"processes": 0})
    eventually(lambda: "video-1" not in pids(toys))
    control_client.ask(toys.run_directory, scale | {"processes": 1})
    eventually(lambda: toys.slot("video-1")["state"] == "RUNNING", message="it is there again")


def test_what_was_scaled_stays_so_until_the_plan_says_another_number(node: Nodes) -> None:
    toys = planned(node(AGENT, VIDEO)).up()
    control_client.ask(toys.run_directory, {"command": "scale", "kind": "video", "processes": 3})
    reload(toys, "video")
    assert list(pids(toys)) == ["agent", "video-1", "video-2", "video-3"]
    plan_anew(toys, video={"processes": 2})
    reload(toys, config_only=True)
    eventually(lambda: list(pids(toys)) == ["agent", "video-1", "video-2"])


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ({"kind": "vidoe", "processes": 1}, "there is no kind 'vidoe' to scale; only video"),
        ({"kind": "agent", "processes": 2}, "there is no kind 'agent' to scale; only video"),
        ({"kind": "video", "processes": -1}, "processes must be a number from 0 to 1000"),
        ({"kind": "video", "processes": True}, "processes must be a number from 0 to 1000"),
    ],
)
def test_what_cannot_be_scaled_is_refused(node: Nodes, command: dict[str, Any], error: str) -> None:
    toys = node(AGENT, VIDEO).up()
    with pytest.raises(control_client.Refused, match=error):
        control_client.ask(toys.run_directory, {"command": "scale", **command})


def test_a_stop_during_a_reload_leaves_nothing_behind(node: Nodes) -> None:
    toys = node(AGENT, {**VIDEO, "entry": "stub_services:waits_when_it_replaces"}).up()
    control_client.ask(toys.run_directory, {"command": "reload", "kinds": None})
    eventually(lambda: toys.slot("video-1")["replacing"])
    assert toys.stop() == exit_codes.OK


def test_commands_are_replaced_old_one_first(node: Nodes) -> None:
    toys = node(AGENT, {"name": "tunnel-1", "role": "command", "command": ["sleep", "600"]}).up()
    before = pids(toys)
    assert reload(toys, "tunnel")["progress"] == "done"
    assert pids(toys)["tunnel-1"] != before["tunnel-1"]
    assert not is_alive(before["tunnel-1"])
