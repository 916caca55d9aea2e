from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bench.__main__ import EVERYTHING, measure
from bench.databases import KINDS
from bench.machine import this_machine
from bench.report import Run, report, save
from bench.samples import By, PickUp, Timing, Timings, percentile
from bench.sizes import TINY
from tests.support.summary import note_database, note_missing_server


def timing(by: By, seconds: float, number: int = 0, measurement: str = "claim") -> Timing:
    return Timing(
        database="sqlite", measurement=measurement, batch=10, by=by, tasks=100, round=number, seconds=seconds, cpu=0.01
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_measurement_is_taken_beside_its_floor(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    run = measure([kind], EVERYTHING, TINY)
    if not run.versions:
        note_missing_server(request.node, kind)
        pytest.skip(f"NOT TESTED on {kind}: its server is not installed")
    note_database(request.node, kind)

    taken = {(one.measurement, one.batch, one.by) for one in run.timings}
    beside = {
        *(("enqueue", batch) for batch in TINY.enqueue),
        *((what, batch) for what in ("claim", "complete", "claim + complete") for batch in TINY.hold),
    }
    assert taken == {(*one, by) for one in beside for by in ("bare", "same", "peerd")} | {("drain", 10, "peerd")}
    assert all(one.seconds > 0 for one in run.timings)
    assert [one.database for one in run.pick_ups] == [kind] * 2 * TINY.pick_ups
    assert msgspec.json.decode(save(run, tmp_path).read_bytes(), type=Run) == run


def test_a_ratio_is_the_median_of_the_rounds_whose_parts_ran_beside_each_other() -> None:
    rounds = [(1.0, 2.0), (10.0, 20.0), (1.0, 8.0)]  # a slow minute takes from both alike
    timings = Timings(
        one
        for number, (floor, ours) in enumerate(rounds)
        for one in (timing("bare", floor, number), timing("peerd", ours, number))
    )
    assert timings.ratio("sqlite", "claim", 10, ("claim", "bare")) == 0.5


def test_a_drain_is_compared_with_claim_and_complete_and_what_is_missing_stays_blank() -> None:
    drain, floor = timing("peerd", 4.0, measurement="drain"), timing("bare", 1.0, measurement="claim + complete")
    run = Run(
        machine=this_machine(),
        sizes=TINY,
        versions={"sqlite": "3.40"},
        timings=[drain, floor],
        pick_ups=[PickUp(database="sqlite", milliseconds=float(number)) for number in range(1, 101)],
    )
    lines = report(run).splitlines()
    [row] = [line for line in lines if line.startswith("| drain")]
    assert [cell.strip() for cell in row.split("|")[1:-1]] == ["drain", "10", "100", "", "25", "0.25", "", "100"]
    assert lines[-1] == "pick-up on an idle node: p50 51 ms, p99 100 ms, worst 100 ms, of 100"


def test_a_percentile_is_a_value_that_was_measured() -> None:
    assert percentile([5.0, 1.0, 3.0], 0.5) == 3.0
    assert percentile([5.0, 1.0, 3.0], 0.99) == 5.0
