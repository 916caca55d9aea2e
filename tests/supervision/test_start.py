from __future__ import annotations

import signal
from pathlib import Path

import pytest

from peerd.runtime.process import exit_codes
from peerd.supervision import control_client
from tests.supervision.conftest import Nodes
from tests.supervision.nodes import AGENT, MANAGER, WORKER, eventually


def test_the_agent_is_ready_before_others_start_and_all_are_notified_when_the_node_is(node: Nodes) -> None:
    stub_node = node({**AGENT, "start": ["sleep 0.3"]}, MANAGER, WORKER, {"name": "video-2"}).up()
    eventually(lambda: len(stub_node.received("ready")) == 4)
    notes = stub_node.notes()
    ran = next(f["at"] for f in notes if f["kind"] == "run" and f["slot"] == "agent")
    started = [f for f in notes if f["kind"] == "start"]
    assert started[0]["slot"] == "agent"
    assert all(f["at"] > ran - 0.05 and f["at"] > started[0]["at"] + 0.3 for f in started[1:])
    last_start = max(f["at"] for f in started)
    assert all(f["at"] > last_start for f in notes if f["kind"] == "received")


def test_a_process_that_wants_to_be_replaced_before_the_node_is_ready_is_replaced(node: Nodes, tmp_path: Path) -> None:
    others_wait = tmp_path / "go on"
    stub_node = node(AGENT, {**WORKER, "run": ["once recycle"]}, {"name": "video-2", "start": [f"until {others_wait}"]})
    stub_node.start()
    eventually(lambda: stub_node.state() == "starting")
    eventually(lambda: stub_node.slot("video-1")["generation"] == 2)
    assert stub_node.state() == "starting"
    others_wait.touch()
    eventually(lambda: stub_node.state() == "running")


def test_whatever_fails_in_a_first_boot_is_named(node: Nodes) -> None:
    failures: dict[str, dict[str, object]] = {
        "cannot load stub_services:unmade: LookupError: there is no such service": {"entry": "stub_services:unmade"},
        "cannot load nowhere:stub: ModuleNotFoundError: No module named 'nowhere'": {"entry": "nowhere:stub"},
        "exit status 3 before it was ready: RuntimeError: no ffmpeg here": {"start": ["fail no ffmpeg here"]},
        "exit status 3 before it was ready: SystemExitRaised: start() raised SystemExit: 5": {"start": ["exit 5"]},
        "killed by SIGKILL before it was ready": {"start": ["crash"]},
        "killed because it did not become ready in time": {"start": ["block"], "boot_timeout": 1.0},
    }
    for error, stub_node in [(error, node(AGENT, {**WORKER, **more}).start()) for error, more in failures.items()]:
        assert stub_node.wait() == exit_codes.BOOT_FAILED, error
        assert "cannot start: video-1" in stub_node.log_text()
        assert error in stub_node.log_text()
        assert [note["slot"] for note in stub_node.notes("stopped")] == ["agent"]


def test_an_agent_that_cannot_boot_ends_the_node_before_anything_else_starts(node: Nodes) -> None:
    stub_node = node({**AGENT, "start": ["fail no database"]}, WORKER).start()
    assert stub_node.wait() == exit_codes.BOOT_FAILED
    assert "cannot start: agent" in stub_node.log_text()
    assert not stub_node.notes(slot="video-1")


def test_a_process_that_dies_while_others_still_boot_ends_the_node_and_is_not_replaced(node: Nodes) -> None:
    for slot in ("agent", "video-1"):
        stub_node = node(AGENT, WORKER, {"name": "audio-1", "start": ["sleep 60"]}).start()
        eventually(lambda: stub_node.notes("run", "video-1") and stub_node.notes("start", "audio-1"))  # noqa: B023
        pid = stub_node.kill(slot)
        assert stub_node.wait() == exit_codes.BOOT_FAILED
        assert f"cannot start: {slot} (process {pid}) died: killed by SIGKILL" in stub_node.log_text()
        assert len(stub_node.notes("start", slot)) == 1


def test_a_stop_while_a_process_boots_is_no_failure(node: Nodes) -> None:
    stub_node = node(AGENT, {**WORKER, "start": ["sleep 60"]}).start()
    eventually(lambda: stub_node.notes("start", "video-1"))
    assert stub_node.stop() == exit_codes.OK


def test_a_second_master_is_refused_and_a_new_one_takes_over_the_folder_of_a_killed_one(node: Nodes) -> None:
    stub_node = node(AGENT).up()
    other = stub_node.start_another(stub_node.folder / "other")
    assert other.wait(60) == exit_codes.ALREADY_RUNNING
    assert f"already running as process {stub_node.pid}" in (stub_node.folder / "other").read_text()
    assert stub_node.slot("agent")["state"] == "RUNNING"
    stub_node.signal(signal.SIGKILL)
    stub_node.wait()
    with pytest.raises(control_client.MasterNotRunning):
        stub_node.status()
    stub_node.up()
    assert stub_node.slot("agent")["state"] == "RUNNING"


def test_a_run_directory_may_have_a_path_longer_than_a_socket_address(node: Nodes) -> None:
    stub_node = node(AGENT)
    stub_node.run_directory = stub_node.folder / ("long-" * 40) / "run"
    stub_node.plan["run_directory"] = str(stub_node.run_directory)
    assert stub_node.up().status()["node"] == "stubs"
    control_client.stop(stub_node.run_directory, timeout=60)
    assert stub_node.wait() == exit_codes.OK


def test_a_plan_that_is_none_is_refused(node: Nodes) -> None:
    stub_node = node(AGENT, {"name": "agent-2", "role": "agent"}).start()
    assert stub_node.wait() == exit_codes.REFUSED
    assert "a node has one agent" in stub_node.log_text()
