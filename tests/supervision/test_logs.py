"""The node's log file: many processes write to it, and it is rotated below them."""

from __future__ import annotations

import re
import signal
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from peerd.runtime.observability.log_file import is_written_by, rotate
from peerd.runtime.process import exit_codes
from peerd.supervision import control_client
from tests.supervision.conftest import Nodes
from tests.supervision.nodes import AGENT, WORKER, StubNode, eventually
from tests.supervision.test_crash import running_again

WRITERS = range(1, 9)
LINES = 250
ROTATIONS = 6
"""So often the log is rotated at least, however slow the rotation is beside the writers."""


def with_a_log(node: Nodes, *slots: dict[str, Any]) -> tuple[StubNode, Path]:
    stub_node = node(*slots)
    log = stub_node.folder / "peerd.log"
    stub_node.plan["log_file"] = str(log)
    return stub_node, log


@pytest.mark.slow
def test_no_line_is_lost_or_torn_when_eight_processes_write_while_the_log_is_rotated(node: Nodes) -> None:
    unbuffered = {"environment": {"PYTHONUNBUFFERED": "1"}}
    writers = [
        {"name": f"writer-{number}", "run": [f"write_between_rotations {LINES} {ROTATIONS}"], **unbuffered}
        for number in WRITERS
    ]
    stub_node, log = with_a_log(node, {**AGENT, "run": ["rotate"]}, *writers)
    stub_node.up()
    eventually(lambda: len(stub_node.notes("written")) == len(WRITERS), timeout=60)
    stub_node.stop()
    files = list(log.parent.glob("peerd.log*"))
    assert len(files) >= ROTATIONS
    found: dict[str, list[int]] = defaultdict(list)
    for line in "".join(file.read_text() for file in files).splitlines():
        if match := re.fullmatch(r"(writer-\d) (\d+) (x*) end", line):
            assert len(match[3]) == int(match[2]) * 37 % 3000
            found[match[1]].append(int(match[2]))
        else:
            assert "peerd stubs: " in line, "every line is whole"
    assert {slot: sorted(numbers) for slot, numbers in found.items()} == {
        f"writer-{number}": list(range(LINES * ROTATIONS)) for number in WRITERS
    }


def test_a_log_that_another_program_rotates_is_reopened_by_all_processes(node: Nodes) -> None:
    stub_node, log = with_a_log(node, AGENT, {**WORKER, "run": ["block"], "grace": 0.5, "release_time": 0.5})
    stub_node.up()
    eventually(lambda: stub_node.notes("blocks"))
    pids = [stub_node.pid, *[int(slot["pid"]) for slot in stub_node.status()["slots"]]]
    reopen = {"command": "reopen-logs"}
    for how in ("signal", "command"):
        rotate(log, keep=1)
        if how == "signal":
            stub_node.signal(signal.SIGUSR1)
        else:
            assert control_client.send_command(stub_node.run_directory, reopen) == {"log_file": str(log)}
        eventually(lambda: all(same_file(log, pid) for pid in pids))
        assert stub_node.state() == "running", "SIGUSR1 is no stop"

    old = log.rename(stub_node.folder / "old.log")
    log.mkdir()
    with pytest.raises(control_client.CommandRefused, match=r"continues in the old one: .*Is a directory"):
        control_client.send_command(stub_node.run_directory, reopen)
    assert "Is a directory" in old.read_text()
    assert stub_node.state() == "running"


def same_file(log: Path, pid: int) -> bool:
    return all(log.exists() and log.samefile(f"/proc/{pid}/fd/{number}") for number in (1, 2))


def test_a_deleted_log_is_created_again(node: Nodes) -> None:
    stub_node, log = with_a_log(node, {**AGENT, "run": ["rotate"]})
    stub_node.up()
    log.unlink()
    eventually(lambda: same_file(log, stub_node.pid) and same_file(log, stub_node.slot("agent")["pid"]))


def test_a_failed_start_names_the_log_on_the_original_stderr(node: Nodes) -> None:
    stub_node, log = with_a_log(node, AGENT, {**WORKER, "start": ["fail no ffmpeg here"]})
    assert stub_node.start().wait() == exit_codes.BOOT_FAILED
    assert stub_node.log_text() == f"peerd: cannot start; {log} says why\n"
    assert "no ffmpeg here" in log.read_text()


def test_of_the_rotated_files_so_many_are_kept(tmp_path: Path) -> None:
    log = tmp_path / "peerd.log"
    for number in range(5):
        log.write_text(str(number))
        rotate(log, keep=3)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {
        "peerd.log.1": "4",
        "peerd.log.2": "3",
        "peerd.log.3": "2",
    }
    assert not is_written_by(log)


def test_a_node_whose_output_is_not_read_any_more_continues(node: Nodes) -> None:
    """As after the end of the program that had started it, and read what it wrote."""
    stub_node = node(AGENT, WORKER)
    stub_node.before = """
import os
readable, writable = os.pipe()
os.close(readable)
os.dup2(writable, 1)
os.dup2(writable, 2)
"""
    stub_node.up()
    running_again(stub_node, "video-1", stub_node.kill("video-1"))
    assert stub_node.stop() == 0
