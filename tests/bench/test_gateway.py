from __future__ import annotations

from contextlib import ExitStack

import psutil
import pytest

from bench import gateway
from bench.databases import open_bench_database
from bench.gateway import P50, P99, SHAPES, Results
from bench.gateway_floor import floor_rates
from bench.gateway_servers import SERVERS, MeasuredServer
from tests.support.server import ServerUnavailableError

pytestmark = pytest.mark.slow
OURS = "node, SQLite"
THEIRS = "beanstalkd -f 0"
WHAT = [f"{title}, {shape.name}" for shape in SHAPES for title in ("put", "reserve + delete")]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")[1:-1]]


def test_ratios_are_taken_within_the_rounds_and_goals_are_marked() -> None:
    results: Results = {
        "put, 1 connection": {THEIRS: [1000.0, 100.0, 1000.0], OURS: [600.0, 60.0, 100.0]},
        "put, pipelined": {THEIRS: [1000.0] * 3, OURS: [999.0, 990.0, 998.0]},
        P99: {THEIRS: [1.0] * 3, OURS: [3.0, 2.5, 4.0]},
    }
    assert [cells(line) for line in gateway.table(results, [THEIRS, OURS])[2:]] == [
        ["put, 1 connection", "1,000 /s", "100 /s", "0.60 × ✓"],
        ["put, pipelined", "1,000 /s", "998 /s", "1.00 × ✗"],
        [P99, "1.00 ms", "3.00 ms", "3.00 × ✓"],
    ]


def test_the_bare_driver_is_measured_beside_a_node() -> None:
    with open_bench_database("sqlite") as target:
        measured = dict(floor_rates(target, 20))
        assert measured.keys() == {"put", "reserve + delete"}
        assert target.ask("SELECT id FROM tasks") == []
        servers = [MeasuredServer(name, 0, psutil.Process()) for name in (THEIRS, OURS)]
        results: Results = {
            "put, 1 connection": {THEIRS: [1000.0], OURS: [300.0], gateway.FLOOR.format(name=OURS): [600.0]},
            "put, pipelined": {THEIRS: [1000.0], OURS: [999.0]},
        }
        [row] = gateway.floor_table(results, servers)[2:]
        assert cells(row) == [f"{OURS}: put, 1 connection", "600 /s", "0.60 ×", "0.50 ×"]


def test_beanstalkd_is_measured_in_every_shape() -> None:
    with ExitStack() as running:
        servers = list(gateway.started(["beanstalkd"], running))
        if not servers:
            pytest.skip("beanstalkd is not installed")
        results = gateway.measure(servers, rounds=2, scale=0.02)
        assert set(results) == {*WHAT, P50, P99}
        assert all(len(figures) == 2 and min(figures) > 0 for one in results.values() for figures in one.values())
        cost = gateway.idle_cost(servers[0], 100)
        assert abs(cost.waiting) < 2**20, "bytes; below 0 where memory was given back meanwhile"
        assert cost.statements is None


def test_a_server_that_cannot_be_started_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(_: object) -> None:
        raise ServerUnavailableError("it is not installed")

    monkeypatch.setitem(SERVERS, "beanstalkd", missing)
    with ExitStack() as running:
        assert list(gateway.started(["beanstalkd"], running)) == []
    assert "NOT MEASURED: beanstalkd: it is not installed" in capsys.readouterr().out
