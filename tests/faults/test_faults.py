"""Short campaigns: two nodes, fourteen seconds of faults. `make faults` is the long form."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import campaign, history, report
from tests.faults.campaign import CampaignPlan
from tests.faults.fault_injector import FaultRates
from tests.faults.nodes import NodeTiming
from tests.support.server import ServerUnavailableError
from tests.support.servers import DATABASES
from tests.support.summary import note_database, note_missing_server

SEED = 7


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", DATABASES)
def test_whatever_dies_nothing_is_lost_and_each_task_has_one_holder(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv(history.VARIABLE, str(tmp_path / "history"))
    plan = CampaignPlan(
        kind=kind,
        seconds=14.0,
        tasks=280,
        seed=SEED,
        names=("one", "two"),
        rates=FaultRates(kill_every=1.5, freeze_every=5.0, outage_every=5.0, longest_outage=4.0),
        timing=NodeTiming(max_update=5.0),
        ends_within=200.0,
    )
    try:
        result = campaign.run(plan, tmp_path)
    except ServerUnavailableError as error:
        note_missing_server(request.node, kind)
        pytest.skip(f"NOT TESTED on {kind}: {error}")
    note_database(request.node, kind)
    report_text = report.words(result)
    print(report_text)  # noqa: T201 - pytest shows it with a failure
    assert result.is_good, report_text
    faults = {name for name, count in result.report.counts.items() if name.startswith("fault") and count}
    assert {"fault: kill worker"} < faults, report_text
    assert result.report.counts["acknowledged"] >= plan.tasks
    assert result.report.counts["unknown"], report_text
    # How many are put depends on the machine and on how long the database was away.
    assert result.report.counts["jobs"] >= 0.25 * plan.jobs_per_second * plan.seconds, report_text
    assert result.report.counts["reservations"] > result.report.counts["jobs"], report_text
