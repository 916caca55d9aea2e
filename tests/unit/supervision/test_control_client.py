from __future__ import annotations

import os
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

import pytest

from peerd.supervision import control_client
from peerd.supervision.control_server import node_lock
from peerd.supervision.plan import Plan
from peerd.supervision.rolling_restart import PLANNER_TIMEOUT, PlannerProcess
from peerd.testing import eventually
from tests.unit.work.test_execution import is_alive


def test_the_master_that_holds_the_lock_is_found_and_no_other_process(tmp_path: Path) -> None:
    for folder, ask in product((tmp_path, tmp_path / "missing"), (control_client.status, control_client.stop)):
        with pytest.raises(control_client.MasterNotRunning, match="no node is running in"):
            ask(folder)
    (tmp_path / "lock").touch()
    for pid in (os.getpid(), 1, 999999999, "none", -1, ""):
        (tmp_path / "master.pid").write_text(f"{pid}\n")
        assert control_client.find_running_master(tmp_path) is None
        with pytest.raises(control_client.MasterNotRunning):
            control_client.stop(tmp_path)
    with node_lock(tmp_path):
        assert control_client.find_running_master(tmp_path) == os.getpid()
    assert control_client.find_running_master(tmp_path) is None


SPEAK = """
from peerd.supervision.reporting import Console
console = Console('n')
for i in range(5000):
    console.log('x' * {})
"""


def test_an_unread_pipe_does_not_block_the_master_and_a_reader_that_has_gone_does_not_end_it() -> None:
    reader, writer = os.pipe()
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", SPEAK.format(500)], stderr=writer, check=True, timeout=60)
    assert time.monotonic() - began < 30
    assert os.read(reader, 4096).startswith(b"peerd n: xxx")
    os.close(reader)
    subprocess.run([sys.executable, "-c", SPEAK.format(10_000)], stderr=writer, check=True, timeout=60)
    os.close(writer)


def test_a_planner_is_ended_with_its_child_when_its_time_is_over(tmp_path: Path) -> None:
    script = f"sleep 1000 & echo $! > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/child"
    planner_command = ["sh", "-c", script]
    folders = {"run_directory": "/r", "project_directory": str(tmp_path)}
    data = {"node": "n", **folders, "kinds": [], "planner": planner_command}
    results: list[tuple[Plan | None, str]] = []
    began = time.monotonic()
    planner = PlannerProcess(Plan.parse(data), lambda plan, error: results.append((plan, error)), began)
    eventually((tmp_path / "child").exists)
    child = (tmp_path / "child").read_text().strip()
    planner.advance(began + PLANNER_TIMEOUT)
    [(plan, error)] = results
    assert (plan, error) == (None, f"the planner took more than {PLANNER_TIMEOUT:g} s")
    eventually(lambda: not is_alive(child))
