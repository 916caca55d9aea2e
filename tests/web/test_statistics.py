"""Statistics over HTTP are those of the client."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import httpx
import msgspec
import pytest

from peerd import Client
from peerd.domain.attempt_totals import AttemptTotals
from peerd.domain.histogram import Histogram
from peerd.store.statistics.buckets import BucketRow, write_buckets
from peerd.store.statistics.depths import sample_depths, write_depths
from peerd.store.statistics.steps import MINUTE, bucket_start


@pytest.fixture(autouse=True)
def history(client: Client) -> None:
    """Attempts of the last minutes, and a sample."""
    at = bucket_start(datetime.now(UTC), MINUTE) - timedelta(minutes=2)
    good = AttemptTotals({"done": 30}, 60.0, Histogram.of([0.5] * 30), Histogram.of([2.0] * 30))
    bad = AttemptTotals({"done": 6, "dead": 4}, 0.0, Histogram.of([0.5] * 10), Histogram.of([2.0] * 10))
    rows = [
        BucketRow(MINUTE, at, "video", "transcode", 1, 7, good),
        BucketRow(MINUTE, at + timedelta(minutes=1), "video", "probe", 2, 8, bad),
    ]
    client.database.run(write_buckets, rows)
    client.database.run(write_depths, client.database.read(sample_depths))


def test_a_summary_is_grouped_and_filtered(http: httpx.Client) -> None:
    [queue] = http.get("/statistics").json()
    assert (queue["queue"], queue["name"], queue["node"]) == ("video", None, None)
    assert (queue["figures"]["done"], queue["figures"]["dead"], queue["figures"]["failure_share"]) == (36, 4, 0.1)
    assert queue["figures"]["run"]["p95"] == pytest.approx(2.0, rel=0.19)
    handlers = http.get("/statistics", params={"by": "handler", "since": "10m"}).json()
    assert {row["name"]: row["figures"]["done"] for row in handlers} == {"transcode": 30, "probe": 6}
    nodes = http.get("/statistics", params={"by": "node", "name": "probe"}).json()
    assert [(row["node"], row["figures"]["done"]) for row in nodes] == [("node 2", 6)]


def test_a_series_has_a_point_for_each_minute_in_which_something_ended(http: httpx.Client) -> None:
    points = http.get("/statistics/series", params={"since": "30m"}).json()
    assert [point["figures"]["done"] for point in points] == [30, 6]
    [coarse] = http.get("/statistics/series", params={"since": "2d", "step": "1h", "by": "queue"}).json()[-1:]
    assert coarse["figures"]["done"] in (6, 36)  # the hour may have changed meanwhile


def test_depths_and_the_overview_are_those_of_the_sample(http: httpx.Client, client: Client) -> None:
    points = http.get("/statistics/depths", params={"queue": "video"}).json()
    assert [(point["status"], point["count"], point["queue"]) for point in points] == [("pending", 5, "video")]
    whole = {point["status"]: point["count"] for point in http.get("/statistics/depths").json()}
    assert whole == {"pending": 6, "scheduled": 1}
    overview = http.get("/overview").json()
    assert overview["counts"] == {"pending": 6, "scheduled": 1}
    assert overview["problems"] == ["no node is active: no task runs"]
    assert overview["figures"]["done"] == 36
    [video] = [queue for queue in overview["queues"] if queue["name"] == "video"]
    [expected] = [queue for queue in client.statistics.overview().queues if queue.name == "video"]
    assert (video["counts"], video["known"], video["figures"]["done"]) == ({"pending": 5}, False, 36)
    assert expected.figures is not None
    assert video["figures"]["wait"] == msgspec.to_builtins(expected.figures.wait)


@pytest.mark.parametrize(
    ("path", "wanted", "status"),
    [
        ("/statistics", {"since": "1s"}, 422),
        ("/statistics", {"since": "99999999d"}, 422),
        ("/statistics", {"since": "-1h"}, 422),
        ("/statistics", {"by": "colour"}, 422),
        ("/statistics", {"node": "nobody"}, 404),
        ("/statistics", {"name": "\x00"}, 422),
        ("/statistics/series", {"step": "7m"}, 422),
        ("/statistics/depths", {"queue": "<b>"}, 422),
        ("/statistics/depths", {"unknown": "1"}, 422),
    ],
)
def test_what_nothing_can_answer_is_refused(http: httpx.Client, path: str, wanted: dict[str, str], status: int) -> None:
    assert http.get(path, params=wanted).status_code == status
