from __future__ import annotations

import signal
import socket
import sys
from pathlib import Path

import pytest

from peerd.runtime.process import exit_codes
from peerd.supervision.control import control_client
from tests.supervision.conftest import Nodes
from tests.supervision.nodes import eventually

AGENT = {"name": "agent", "role": "agent"}
MANAGER = {"name": "manager", "role": "manager"}
WORKER = {"name": "video-1"}


def test_the_agent_is_ready_before_others_start_and_all_hear_when_the_node_is(node: Nodes) -> None:
    toys = node({**AGENT, "start": ["sleep 0.3"]}, MANAGER, WORKER, {"name": "video-2"}).up()
    eventually(lambda: len(toys.received("ready")) == 4, message="everybody has heard it")
    facts = toys.facts()
    ran = next(f["at"] for f in facts if f["fact"] == "run" and f["slot"] == "agent")
    started = [f for f in facts if f["fact"] == "start"]
    assert started[0]["slot"] == "agent"
    assert all(f["at"] > ran - 0.05 and f["at"] > started[0]["at"] + 0.3 for f in started[1:])
    last_start = max(f["at"] for f in started)
    assert all(f["at"] > last_start for f in facts if f["fact"] == "received")


def test_the_status_shows_each_slot(node: Nodes) -> None:
    toys = node(AGENT, WORKER).up()
    status = toys.status()
    assert (status["node"], status["pid"], status["state"]) == ("toys", toys.pid, "running")
    video = toys.slot("video-1")
    assert (video["kind"], video["role"], video["state"], video["generation"]) == ("video", "worker", "RUNNING", 1)
    assert video["identity"] == {"process_id": video["pid"] * 10}
    assert video["last_cause"] is None
    assert (toys.run_directory / "master.pid").read_text() == f"{toys.pid}\n"


def test_a_failed_boot_ends_the_node_with_a_clear_error(node: Nodes) -> None:
    toys = node(AGENT, {**WORKER, "start": ["fail no ffmpeg here"]}, {"name": "video-2"}).start()
    assert toys.wait() == exit_codes.BOOT_FAILED
    error = "died: exit status 3 before it was ready: RuntimeError: no ffmpeg here"
    assert "cannot start: video-1" in toys.said()
    assert error in toys.said()
    stopped = [f["slot"] for f in toys.facts("stopped")]
    assert stopped[-1] == "agent"


def test_a_process_that_wants_to_be_replaced_before_the_node_is_ready_is_replaced(node: Nodes, tmp_path: Path) -> None:
    others_wait = tmp_path / "go on"
    toys = node(AGENT, {**WORKER, "run": ["once recycle"]}, {"name": "video-2", "start": [f"until {others_wait}"]})
    toys.start()
    eventually(lambda: toys.state() == "starting")
    eventually(lambda: toys.slot("video-1")["generation"] == 2, message="another one is started in its place")
    assert toys.state() == "starting"
    others_wait.touch()
    eventually(lambda: toys.state() == "running")


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"entry": "stub_services:unmade"}, "cannot load stub_services:unmade: LookupError: there is no such toy"),
        ({"entry": "nowhere:toy"}, "cannot load nowhere:toy: ModuleNotFoundError: No module named 'nowhere'"),
        ({"start": ["crash"]}, "killed by SIGKILL before it was ready"),
        ({"start": ["exit 5"]}, "exit status 3 before it was ready: UnexpectedExit: start() raised SystemExit: 5"),
        ({"start": ["block"], "boot_timeout": 1.0}, "killed, for it did not become ready in time"),
    ],
)
def test_whatever_fails_in_a_first_boot_is_named(node: Nodes, more: dict[str, object], error: str) -> None:
    toys = node(AGENT, {**WORKER, **more}).start()
    assert toys.wait() == exit_codes.BOOT_FAILED
    assert error in toys.said()


def test_an_agent_that_cannot_boot_ends_the_node_before_anything_else_starts(node: Nodes) -> None:
    toys = node({**AGENT, "start": ["fail no database"]}, WORKER).start()
    assert toys.wait() == exit_codes.BOOT_FAILED
    assert "cannot start: agent" in toys.said()
    assert not toys.facts(slot="video-1")


@pytest.mark.parametrize("slot", ["agent", "video-1"])
def test_who_dies_while_others_still_boot_ends_the_node_and_is_not_replaced(node: Nodes, slot: str) -> None:
    toys = node(AGENT, WORKER, {"name": "audio-1", "start": ["sleep 60"]}).start()
    eventually(lambda: toys.facts("run", "video-1") and toys.facts("start", "audio-1"))
    pid = toys.kill(slot)
    assert toys.wait() == exit_codes.BOOT_FAILED
    assert f"cannot start: {slot} (process {pid}) died: killed by SIGKILL" in toys.said()
    assert len(toys.facts("start", slot)) == 1


def test_a_process_is_ready_when_its_start_has_ended_and_not_when_it_listens_somewhere(
    node: Nodes, tmp_path: Path
) -> None:
    may_go_on = tmp_path / "go on"
    toys = node(AGENT, {**WORKER, "start": ["side_door", f"until {may_go_on}"], "run": ["side_door"]}).start()
    (door,) = eventually(lambda: toys.facts("side door"))
    with socket.create_connection(("127.0.0.1", door["port"]), timeout=20):
        assert (toys.state(), toys.slot("video-1")["state"]) == ("starting", "STARTING")
    may_go_on.touch()
    eventually(lambda: len(toys.facts("side door")) == 2, message="another one is opened, and means nothing")
    eventually(lambda: toys.state() == "running")


def test_what_a_process_writes_while_it_boots_is_no_failure(node: Nodes) -> None:
    toys = node(AGENT, {**WORKER, "start": ["write 10"]}).up()
    assert "video-1 9 " in toys.said(), "half of it was written to stderr"


def test_a_stop_while_a_process_boots_is_no_failure(node: Nodes) -> None:
    toys = node(AGENT, {**WORKER, "start": ["sleep 60"]}).start()
    eventually(lambda: toys.facts("start", "video-1"))
    assert toys.stop() == exit_codes.OK


def test_a_second_master_is_refused(node: Nodes) -> None:
    toys = node(AGENT).up()
    other = toys.start_another(toys.folder / "other")
    assert other.wait(10) == exit_codes.ALREADY_RUNNING
    assert f"already running as process {toys.pid}" in (toys.folder / "other").read_text()
    assert toys.slot("agent")["state"] == "RUNNING"


def test_a_new_master_takes_over_the_folder_of_a_killed_one(node: Nodes) -> None:
    toys = node(AGENT).up()
    toys.signal(signal.SIGKILL)
    toys.wait()
    with pytest.raises(control_client.NotRunning):
        toys.status()
    toys.up()
    assert toys.slot("agent")["state"] == "RUNNING"


def test_the_master_loads_the_standard_library_and_its_own_few_modules_only(node: Nodes) -> None:
    toys = node(AGENT, WORKER).up()
    loaded = control_client.ask(toys.run_directory, {"command": "modules"})["modules"]
    site = {"sitecustomize", "usercustomize", "_distutils_hack"}  # what an interpreter loads by itself
    known = sys.stdlib_module_names | site | {"peerd", "__main__"}
    assert not {m for m in loaded if m.partition(".")[0] not in known and not m.startswith("__editable__")}
    own = {m for m in loaded if m.startswith("peerd.") and not m.startswith("peerd.supervision")}
    runtime = (
        "launch",
        "messages",
        "messages.addressing",
        "messages.frames",
        "observability",
        "observability.escaping",
        "observability.logfile",
        "process",
        "process.exit_codes",
        "process.pdeathsig",
        "process.process_tree",
        "unix_socket_path",
    )
    assert own == {"peerd.domain", "peerd.domain.bind_address", "peerd.domain.quoting", "peerd.runtime"} | {
        f"peerd.runtime.{name}" for name in runtime
    }
    assert not {m for m in loaded if m in ("asyncio", "sqlite3", "http", "email")}


def test_an_unknown_command_is_refused_with_those_that_are_known(node: Nodes) -> None:
    toys = node(AGENT).up()
    with pytest.raises(control_client.Refused, match="unknown command 'dance': one of status, stop"):
        control_client.ask(toys.run_directory, {"command": "dance"})


def test_a_run_directory_may_have_a_path_longer_than_a_socket_address(node: Nodes) -> None:
    toys = node(AGENT)
    toys.run_directory = toys.folder / ("long-" * 40) / "run"
    toys.plan["run_directory"] = str(toys.run_directory)
    assert toys.up().status()["node"] == "toys"
    control_client.stop(toys.run_directory, timeout=20)
    assert toys.wait() == exit_codes.OK


def test_a_plan_that_is_none_is_refused(node: Nodes) -> None:
    toys = node(AGENT, {"name": "agent-2", "role": "agent"}).start()
    assert toys.wait() == exit_codes.REFUSED
    assert "a node has one agent" in toys.said()
