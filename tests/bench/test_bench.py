from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench import peer_measurements, plots
from bench.__main__ import measure
from bench.databases import VARIANTS
from bench.fairness import waits
from bench.goals import GOALS
from bench.machine import this_machine
from bench.peer_measurements import PEER_SETUPS, PeerMeasurements
from bench.pick_up_latency import FROM_A_NODE
from bench.report import BenchRun, joined, report, save
from bench.samples import (
    ClaimsDuringChore,
    FairnessWait,
    Idle,
    MeasurementFailure,
    PickUp,
    Ratio,
    ReadCounts,
    Sample,
    Shape,
    Timings,
    TimingSample,
    percentile,
)
from bench.sizes import TINY
from tests.support.servers import DATABASES
from tests.support.summary import note_database, note_missing_server

pytestmark = pytest.mark.slow
SPEAKS_SQL = ("enqueue", "hold", "drain", "idle", "shapes", "beside")
"""Measurements with statements of their own."""


def timing(by: str, seconds: float, number: int = 0, measurement: str = "claim", batch: int = 10) -> TimingSample:
    what = {"database": "sqlite", "measurement": measurement, "batch": batch, "by": by}
    return TimingSample(**what, tasks=100, round=number, seconds=seconds, cpu=0.01)  # type: ignore[arg-type]


def run_with(*samples: Sample) -> BenchRun:
    return BenchRun(machine=this_machine(), sizes=TINY, versions={"sqlite": "3.40"}, samples=list(samples))


def row_of(run: BenchRun, start: str) -> list[str]:
    """The cells of the one row of the report that begins so."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in report(run).splitlines()]
    [row] = [row for row in rows if " | ".join(row).startswith(start)]
    return row


def taken_on(name: str, only: tuple[str, ...]) -> dict[type[Sample], list[Any]]:
    taken: dict[type[Sample], list[Any]] = defaultdict(list)
    for sample in measure([name], only, TINY).samples:
        taken[type(sample)].append(sample)
    return taken


def beside_its_floors() -> set[tuple[str, int, str]]:
    claims = ("claim", "complete", "claim + complete")
    both = [("enqueue", batch) for batch in TINY.enqueue] + [(what, batch) for what in claims for batch in TINY.hold]
    return {(*one, by) for one in both for by in ("bare", "same", "peerd")} | {("drain", 10, "peerd")}


@pytest.mark.timeout(240)
@pytest.mark.one_database
@pytest.mark.parametrize("name", DATABASES)
def test_every_database_is_measured_beside_its_floors_and_in_every_shape(
    name: str, request: pytest.FixtureRequest
) -> None:
    taken = taken_on(name, SPEAKS_SQL)
    if [one.what for one in taken[MeasurementFailure]] == ["everything"]:
        note_missing_server(request.node, VARIANTS[name].kind)
        pytest.skip(f"NOT TESTED on {name}: {taken[MeasurementFailure][0].reason}")
    note_database(request.node, VARIANTS[name].kind)
    assert taken[MeasurementFailure] == []
    assert {(one.measurement, one.batch, one.by) for one in taken[TimingSample]} == beside_its_floors()
    assert all(one.seconds > 0 for one in taken[TimingSample])
    assert len(taken[Shape]) == 10
    assert [one.chore for one in taken[ClaimsDuringChore]] == ["arrive", "purge"]
    assert any(
        one.milliseconds for one in taken[ClaimsDuringChore]
    )  # a chore of so few rows may end before the first claim
    if VARIANTS[name].kind == "sqlite":
        assert taken[Idle] == []
    else:
        assert all(one.read.locks == one.empty_read.locks == one.batch for one in taken[Shape])
        [idle] = taken[Idle]
        assert sum(idle.kinds.values()) == idle.statements > 0


@pytest.mark.timeout(240)
def test_nodes_are_measured_in_each_way(request: pytest.FixtureRequest) -> None:
    """How soon a task is picked up, how processes and nodes share tasks, and how long a free executor slot waits."""
    note_database(request.node, "sqlite")
    taken = taken_on("sqlite", ("pick-up", "cores", "processes", "nodes", "fairness"))
    assert taken[MeasurementFailure] == []
    assert [one.by for one in taken[PickUp]] == [FROM_A_NODE, "peerd, from a program"]
    assert all(0 < one.milliseconds < 60_000 for one in taken[PickUp])
    measured = {(one.measurement, one.batch) for one in taken[TimingSample]}
    assert measured == {("cores", 1), ("cores", 2), ("processes", 1), ("processes", 2), ("nodes", 2)}
    assert all(len(one.shares) == one.batch and sum(one.shares) == one.tasks for one in taken[TimingSample])
    assert len(taken[FairnessWait]) == TINY.naps


def test_only_the_waiting_beside_a_free_executor_slot_counts() -> None:
    four = dict.fromkeys(range(1, 5), 0) | {-1: 100, -2: 200, -3: 200, -4: 200}
    # All executor slots are taken until 100: of the fifth's 50 + 7, seven count; the sixth has one at once, at 230.
    noted = four | {5: 107, -5: 300, 6: 233, -6: 300}
    assert list(waits({5: 50, 6: 230}, noted)) == [7, 3]


def test_a_ratio_is_taken_within_the_rounds_whose_parts_ran_beside_each_other() -> None:
    rounds = [(1.0, 2.0), (10.0, 20.0), (1.0, 8.0)]  # a slow minute takes from both alike
    timings = Timings(
        one
        for number, (floor, ours) in enumerate(rounds)
        for one in (timing("bare", floor, number), timing("peerd", ours, number))
    )
    ratio = timings.ratio(("sqlite", "claim", 10, "peerd"), ("sqlite", "claim", 10, "bare"))
    assert ratio == Ratio(0.5, 0.125, 0.5)
    assert str(ratio) == "0.50 (0.12–0.50)"
    assert [percentile([5.0, 1.0, 3.0], part) for part in (0.5, 0.99)] == [3.0, 5.0], "values that were measured"


def test_what_belongs_together_is_compared_and_what_is_missing_stays_blank() -> None:
    run = run_with(timing("peerd", 4.0, measurement="drain"), timing("bare", 1.0, measurement="claim + complete"))
    assert row_of(run, "drain | 10") == ["drain", "10", "100", "", "25", "0.25 (0.25–0.25)", "", "100"]
    peers = run_with(
        timing("peerd", 1.0, measurement="drain", batch=100), timing("Huey", 20.0, measurement="drain", batch=10)
    )
    assert row_of(peers, "drain | Huey")[2:] == ["5", "20.0 (20.0–20.0)"], "beside a drain of a hundred at once"
    assert row_of(peers, "drain on SQLite ÷ Huey")[2] == "sqlite: 20.0 (20.0–20.0)"
    assert {goal.measured([]) for goal in GOALS} == {"not measured", "not by make bench: docs/scaling.md"}


def test_the_goals_are_read_from_the_samples() -> None:
    shape = Shape(
        database="mariadb",
        shape="paused",
        rows=1000,
        batch=10,
        milliseconds=(3.0,),
        empty_milliseconds=(2.0,),
        read=ReadCounts(rows=80, locks=10),
        empty_read=ReadCounts(rows=74, locks=10),
    )
    run = run_with(
        shape,
        Idle(database="mariadb", seconds=10.0, statements=15, kinds={"SELECT": 15}),
        FairnessWait(database="mariadb", milliseconds=12.5),
        PickUp(database="mariadb", by=FROM_A_NODE, milliseconds=6.0),
        PickUp(database="redis", by="Celery", milliseconds=3.0),
    )
    assert row_of(run, "rows read")[2] == "mariadb: 0 of 1 equal; not: paused of 1,000"
    assert row_of(run, "a claim's p99")[2] == "mariadb: 1.50 at the most (paused)"
    assert row_of(run, "statements a second")[2] == "mariadb: 1.50"
    assert row_of(run, "longest wait")[2] == "mariadb: 12.5 ms"
    assert row_of(run, "pick-up from")[2] == "mariadb: 2.00 × and 2.00 ×"


def test_samples_are_kept_as_they_are_and_runs_are_joined_with_their_rounds_apart(tmp_path: Path) -> None:
    kept = PickUp(database="sqlite", by="peerd", milliseconds=1.5)
    missing = MeasurementFailure(database="redis", what="RQ", reason="no module")
    runs = run_with(timing("peerd", 4.0), kept, missing), run_with(timing("bare", 1.0), timing("peerd", 2.0))
    files = [save(run, tmp_path / str(number)) for number, run in enumerate(runs)]
    assert msgspec.json.decode(files[0].read_bytes(), type=BenchRun) == runs[0]
    whole = joined(files)
    ratio = whole.timings.ratio(("sqlite", "claim", 10, "peerd"), ("sqlite", "claim", 10, "bare"))
    assert ratio == Ratio(0.5, 0.5, 0.5)
    assert whole.timings.rate("sqlite", "claim", 10, "peerd") == 37.5


def test_what_was_measured_is_drawn_and_nothing_else(tmp_path: Path) -> None:
    run = run_with(timing("peerd", 4.0, measurement="drain"), timing("bare", 1.0, measurement="claim + complete"))
    assert [file.name for file in plots.draw(run, tmp_path)] == ["performance-batch.png"]
    assert (tmp_path / "performance-batch.png").read_bytes().startswith(b"\x89PNG")


def test_a_peer_that_cannot_be_measured_is_in_the_report(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In this environment there are no peers: each of them fails to be imported, and says so."""
    monkeypatch.setattr(peer_measurements, "PYTHON", Path(sys.executable))
    sizes = msgspec.structs.replace(TINY, peers=("rq",))
    peers = PeerMeasurements("redis", "redis", {"rq": "redis://127.0.0.1:1/0"}, ("rq",))
    failures = list(peers.measure(sizes))
    assert all(isinstance(one, MeasurementFailure) for one in failures)
    assert "- redis: RQ: drain 10 30 20: ModuleNotFoundError: No module named 'redis'" in report(run_with(*failures))
    monkeypatch.setattr(peer_measurements, "PYTHON", tmp_path / "python")
    [failure] = peers.pick_up(TINY)
    assert isinstance(failure, MeasurementFailure)
    assert failure.reason.endswith("make bench-peers")


@pytest.mark.skipif(not peer_measurements.PYTHON.exists(), reason="the peers are not installed (make bench-peers)")
def test_a_peer_enqueues_drains_and_picks_up(tmp_path: Path) -> None:
    peers = PeerMeasurements("sqlite", "sqlite", {"huey_sqlite": f"sqlite:///{tmp_path}/huey.sqlite"})
    taken = [*peers.measure(TINY), *peers.pick_up(TINY)]
    assert [type(one) for one in taken] == [TimingSample, TimingSample, TimingSample, PickUp], taken
    assert all(one.seconds > 0 for one in taken if isinstance(one, TimingSample))


def test_every_peer_is_pinned() -> None:
    folder = Path(peer_measurements.__file__).parent / "peers"
    pinned = {line.partition("==")[0].lower() for line in (folder / "constraints.txt").read_text().splitlines()}
    lines = [line for line in (folder / "requirements.txt").read_text().splitlines() if not line.startswith("#")]
    wanted = {word.partition("[")[0].lower() for line in lines for word in line.split()}
    assert wanted <= pinned
    assert {peer_setup.module for peer_setup in PEER_SETUPS} <= {file.stem for file in folder.glob("*.py")}
