"""The history: recorded events are kept, even if their writer was killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from peerd.testing import eventually
from tests.faults import history

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
TELLS_UNTIL_KILLED = """
from itertools import count
from tests.faults import history
for number in count(1):
    history.record("began", task=number)
"""


def test_events_of_all_processes_come_in_the_order_of_their_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(history.VARIABLE, str(tmp_path))
    history.record("fault", kind="kill", pids=[1, 2], nodes=["one"])
    script = "from tests.faults import history; history.record('began', task=7, unheard_of=1)"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)
    history.record("healed", kind="kill")
    fault, began, healed = history.read(tmp_path)
    assert (fault.event, fault.pids, fault.nodes, fault.pid) == ("fault", (1, 2), ("one",), os.getpid())
    assert (began.event, began.task) == ("began", 7)
    assert began.pid != os.getpid()
    assert fault.at < began.at < healed.at
    assert fault.time <= began.time <= healed.time


def test_a_kill_loses_nothing_that_was_reported_and_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    environment = {**os.environ, history.VARIABLE: str(tmp_path)}
    teller = subprocess.Popen([sys.executable, "-c", TELLS_UNTIL_KILLED], cwd=ROOT, env=environment)
    try:
        eventually(lambda: sum(file.stat().st_size for file in tmp_path.iterdir()) > 100_000)
    finally:
        teller.kill()
        teller.wait()
    (tmp_path / "1-1.jsonl").write_bytes(b'{"at": 1, "event": "began"}\n{"at": 2, "eve')
    cut_off, *told = history.read(tmp_path)
    assert cut_off.at == 1
    assert len(told) > 500
    assert [event.task for event in told] == list(range(1, len(told) + 1))
