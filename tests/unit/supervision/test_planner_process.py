from __future__ import annotations

import time
from pathlib import Path

from peerd.supervision.event_loop import SelectorLoop
from peerd.supervision.plan import Plan
from peerd.supervision.reload.planner_process import PLANNER_TIMEOUT, PlannerProcess
from peerd.testing import eventually
from tests.unit.work.test_process_handlers import is_alive


def test_a_planner_whose_child_holds_its_pipes_is_ended_with_it_when_its_time_is_over(tmp_path: Path) -> None:
    script = f"sleep 1000 & echo $! > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/child"
    data = {"node": "n", "run_directory": "/r", "project_directory": "/p", "kinds": [], "planner": ["sh", "-c", script]}
    results: list[tuple[Plan | None, str]] = []
    began = time.monotonic()
    planner = PlannerProcess(
        Plan.parse(data), SelectorLoop(print), lambda plan, error: results.append((plan, error)), began
    )
    eventually((tmp_path / "child").exists)
    child = (tmp_path / "child").read_text().strip()
    planner.advance(began + PLANNER_TIMEOUT)
    assert planner.is_done
    [(plan, error)] = results
    assert (plan, error) == (None, f"the planner took more than {PLANNER_TIMEOUT:g} s")
    eventually(lambda: not is_alive(child))
