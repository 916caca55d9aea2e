from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import AsyncMock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerd.domain.attempt_totals import Histogram
from peerd.runtime.metrics import registry
from peerd.runtime.metrics.exposition import expose, expose_as_text
from peerd.runtime.metrics.node_metrics import (
    MOST_HANDLERS_SHOWN,
    MOST_SERIES_OF_METRIC,
    MetricsNotAvailable,
    MetricsReporter,
    NodeMetrics,
    ReportedGrowth,
    page_of,
    read_node_metrics,
)
from peerd.runtime.metrics.registry import (
    MAX_CHUNK,
    MOST_HANDLERS,
    OTHER,
    AttemptStatistics,
    HandlerKey,
    MetricsRegistry,
    Sample,
    SeriesKey,
    attempt_samples,
    in_chunks,
    parse_samples,
    sample_of,
)
from peerd.runtime.observability.events import AttemptEnded, EventBus
from peerd.runtime.process.process_context import METRICS_REPORT_ACTION, ProcessContext
from peerd.testing.waiting import eventually_async
from tests.support.exposition import by_series, parse_openmetrics, parse_text, series
from tests.support.rows import rows
from tests.unit.work.test_rung_polling import FakeLink

FINISHED = "peerd_tasks_finished_total"
RESCUES = "peerd_rescues_total"
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
HOSTILE = 'a"b\\c\nd{e="f"} 7\n# HELP x'


def finished(queue: str, name: str, count: int = 1) -> Sample:
    return Sample(FINISHED, (queue, name, "done"), count)


def counted(node: NodeMetrics) -> dict[SeriesKey, float]:
    return {sample.key: sample.value for sample in node.samples() if sample.value}


class RecordingLink(FakeLink):
    def __init__(self) -> None:
        self.frames: list[dict[str, Any]] = []

    def send(self, message: Mapping[str, object]) -> None:
        self.frames.append(json.loads(json.dumps(message)))

    def reports(self) -> list[list[Any]]:
        return [frame["data"] for frame in self.frames if frame.get("action") == METRICS_REPORT_ACTION]


def test_what_was_not_delivered_is_part_of_the_next_growth_and_a_gauge_is_reported_to_each_new_agent() -> None:
    growth, gauge = ReportedGrowth(), Sample("peerd_gateway_clients", ("tubes",), 2)
    durations = Histogram.of([1.0])
    growth.undo(growth.take([Sample(RESCUES, value=3), sample_of("peerd_claim_seconds", (), durations)]))
    found = growth.take([Sample(RESCUES, value=5), sample_of("peerd_claim_seconds", (), Histogram.of([1.0, 2.0]))])
    assert ([sample.value for sample in found], found[1].histogram.count) == ([5, 3.0], 2)
    assert [growth.take([gauge]), growth.take([gauge])] == [[gauge], []]
    growth.forget_gauges()
    assert growth.take([gauge]) == [gauge]


async def test_a_process_reports_growth_again_until_it_is_delivered() -> None:
    link = RecordingLink()
    process = ProcessContext(link, EventBus())
    process.metrics.count(RESCUES, by=2)
    MetricsReporter(process, every=0.01)
    await eventually_async(link.reports)
    (frame,) = [frame for frame in link.frames if frame.get("action") == METRICS_REPORT_ACTION][:1]
    assert frame["to"] == {"role": "agent"}
    process.messenger.receive({"type": "delivery", "id": frame["id"], "delivered": 0, "error": "there is no agent"})
    process.metrics.count(RESCUES)
    await eventually_async(lambda: link.reports()[1:])
    await process.finish(0.0)
    assert sum(sample[2] for report in link.reports()[1:] for sample in report) == 3
    stopping = ProcessContext(last := RecordingLink(), EventBus())
    stopping.metrics.add_source(lambda: [Sample("peerd_gateway_clients", ("tubes",), 2)])
    MetricsReporter(stopping, every=3600.0)
    stopping.metrics.count(RESCUES)
    await stopping.finish(0.0)
    assert [parse_samples(report) for report in last.reports()] == [[Sample(RESCUES, value=1)]], (
        "the last has no gauges"
    )


def test_invented_names_and_values_do_not_grow_the_series_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    node = NodeMetrics()
    for number in range(3 * MOST_HANDLERS_SHOWN):
        node.add([finished("jobs", f"name-{number}")], 1)
    for number in range(3 * MOST_SERIES_OF_METRIC):
        node.add([finished(f"queue-{number}", "name")], 1)
    found = {key: value for key, value in counted(node).items() if key.name == FINISHED}
    assert len(found) <= MOST_HANDLERS_SHOWN + MOST_SERIES_OF_METRIC + 1
    assert found[SeriesKey(FINISHED, ("jobs", OTHER, "done"))] == 2 * MOST_HANDLERS_SHOWN
    assert sum(found.values()) == 3 * (MOST_HANDLERS_SHOWN + MOST_SERIES_OF_METRIC), "none is lost"
    monkeypatch.setattr(registry, "MOST_SERIES", 10)
    metrics, node = MetricsRegistry(), NodeMetrics()
    for number in range(50):
        metrics.count("peerd_schedule_runs_total", f"schedule-{number}" * 100, "done")
    assert len(metrics.samples()) == 11
    node.add(metrics.samples(), 1)
    for number in range(3 * MOST_SERIES_OF_METRIC):
        node.add([Sample("peerd_chore_rows_total", (f"chore-{number}",), 1)], 1)
    chores = {key: value for key, value in counted(node).items() if key.name == "peerd_chore_rows_total"}
    assert len(chores) == MOST_SERIES_OF_METRIC + 1
    assert sum(chores.values()) == 3 * MOST_SERIES_OF_METRIC


NO_SAMPLES: list[list[Any]] = [
    ["peerd_invented_total", [], 1.0, []], [RESCUES, ["label"], 1.0, []], [RESCUES, [], -1.0, []],
    [FINISHED, ["q" * 201, "n", "done"], 1.0, []], ["peerd_claim_seconds", [], 1.0, [[54, 1]]],
    ["peerd_claim_seconds", [], 1.0, [[0, -1]]],
]  # fmt: skip


async def test_what_is_no_sample_is_not_counted_and_what_is_no_report_or_no_page_is_refused() -> None:
    for sample in NO_SAMPLES:
        assert parse_samples([sample, [RESCUES, [], 1.0, []]]) == [Sample(RESCUES, value=1)]
    for data in (None, 7, [7], [[RESCUES, [], "1", []]], [[RESCUES, "x"]]):
        with pytest.raises(msgspec.ValidationError):
            parse_samples(data)
    for answer in (None, {}, {"samples": 7}, {"samples": [], "after": 7}):
        with pytest.raises(MetricsNotAvailable):
            await read_node_metrics(AsyncMock(return_value=answer))
    with pytest.raises(MetricsNotAvailable, match="pages"):
        await read_node_metrics(AsyncMock(return_value={"samples": [], "after": [RESCUES, []]}))


async def test_messages_have_a_largest_size_and_pages_are_all_of_it() -> None:
    node = NodeMetrics()
    names = [f"{number}-{'ü' * 190}" for number in range(MOST_HANDLERS_SHOWN)]
    for name in names:
        durations = Histogram.of([2.0**exponent for exponent in range(-9, 16)])
        node.add([finished("jobs", name), sample_of("peerd_task_run_seconds", ("jobs", name), durations)], 1)
    chunks = list(in_chunks(node.samples()))
    assert len(chunks) > 1
    assert max(len(json.dumps(chunk, ensure_ascii=False).encode()) for chunk in chunks) <= MAX_CHUNK * 1.1
    asked = []

    async def request(data: Any) -> Any:
        asked.append(data)
        after = data["after"]
        return json.loads(
            json.dumps(msgspec.to_builtins(page_of(node.samples(), after and SeriesKey(after[0], tuple(after[1])))))
        )

    assert await read_node_metrics(request) == node.samples()
    assert len(asked) == len(chunks)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=50), st.integers(1, 2**53))
def test_any_label_and_any_count_come_back_from_the_text(name: str, count: int) -> None:
    found = by_series(parse_text(expose_as_text([finished("jobs", name, count)])))
    assert found == {series(FINISHED, queue="jobs", name=name, outcome="done"): count}


@rows("accept", ["", OPENMETRICS])
def test_names_of_any_characters_are_escaped(accept: str) -> None:
    statistics = AttemptStatistics()
    statistics(AttemptEnded(task_id=1, queue="jobs", name=HOSTILE, outcome="done", seconds=0.003, wait=100_000.0))
    body, media_type = expose(attempt_samples(statistics), accept)
    assert ("openmetrics" in media_type) is bool(accept)
    parse = parse_openmetrics if accept else parse_text
    found = by_series(parse(body.decode()))
    assert found[series(FINISHED, queue="jobs", name=HOSTILE, outcome="done")] == 1
    run, wait = "peerd_task_run_seconds_bucket", "peerd_task_wait_seconds_bucket"
    for bucket, le, count in ((run, "0.002", 0), (run, "0.004", 1), (wait, "67108.864", 0), (wait, "+Inf", 1)):
        assert found[series(bucket, queue="jobs", name=HOSTILE, le=le)] == count
    assert found[series("peerd_task_wait_seconds_sum", queue="jobs", name=HOSTILE)] == 100_000.0


def test_gauges_of_processes_are_added_or_the_largest_counts() -> None:
    node = NodeMetrics()
    for pid, lag in ((1, 0.5), (2, 0.25)):
        node.add([Sample("peerd_loop_lag_seconds", ("jobs",), lag), Sample("peerd_slots", ("jobs", "busy"), 2)], pid)
    found = counted(node)
    assert found[SeriesKey("peerd_loop_lag_seconds", ("jobs",))] == 0.5
    assert found[SeriesKey("peerd_slots", ("jobs", "busy"))] == 4
    node.remove_process(1)
    assert counted(node)[SeriesKey("peerd_loop_lag_seconds", ("jobs",))] == 0.25


def ended(name: str = "n", outcome: str = "done", seconds: float = 0.5, wait: float | None = 2.0) -> AttemptEnded:
    return AttemptEnded(task_id=1, queue="q", name=name, outcome=outcome, seconds=seconds, wait=wait)


def test_attempts_are_counted_since_a_snapshot_and_names_beyond_the_limit_as_others() -> None:
    statistics = AttemptStatistics()
    for outcome in ("done", "failure", "released"):
        statistics(ended(outcome=outcome))
    [earlier] = statistics.snapshot().values()
    statistics(ended(outcome="done", wait=None))
    statistics(ended(outcome="timeout"))
    [(key, later)] = statistics.snapshot().items()
    added = later.since(earlier)
    assert key == HandlerKey("q", "n")
    assert (added.done, added.failures, added.attempts) == (1, 1, 2)
    assert (added.run.count, added.wait.count) == (2, 1)
    assert later.since(None).outcomes["released"] == 1
    assert later.since(None).run.count == 4, "a released attempt has no times"
    statistics = AttemptStatistics()
    assert statistics.key_of("q", "running") == HandlerKey("q", "running")
    for number in range(MOST_HANDLERS + 10):
        statistics(ended(name=str(number)))
    assert statistics.key_of("q", "running") == HandlerKey("q", "running")
    assert statistics.key_of("q", "one more") == HandlerKey("q", OTHER)
    snapshot = statistics.snapshot()
    assert len(snapshot) == MOST_HANDLERS + 1
    assert snapshot[HandlerKey("q", OTHER)].outcomes["done"] == 11


def test_snapshots_are_taken_in_another_thread() -> None:
    statistics, stopped = AttemptStatistics(), threading.Event()

    def read() -> None:
        while not stopped.is_set():
            statistics.snapshot()

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        for number in range(20_000):
            statistics(ended(name=str(number % 400), outcome=f"outcome {number % 50}"))
        stopped.set()
        reading.result()
    assert sum(found.run.count for found in statistics.snapshot().values()) == 20_000
