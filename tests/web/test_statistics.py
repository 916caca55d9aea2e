"""Statistics over HTTP are those of the client."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import httpx
import msgspec
import pytest
import sqlalchemy as sa

from peerd import Client
from peerd.domain.attempt_totals import AttemptTotals
from peerd.domain.histogram import Histogram
from peerd.store.schema.sql_clock import seconds_from_now
from peerd.store.schema.tables import queues
from peerd.store.statistics.buckets import BucketRow, write_buckets
from peerd.store.statistics.depths import sample_depths, write_depths
from peerd.store.statistics.steps import MINUTE, bucket_start
from tests.cli.conftest import Peerd, peerd
from tests.web.access_world import bearer, problem

__all__ = ["peerd"]  # the fixture


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
    for name in ("video", "mail"):
        client.queues.pause(name, "1h")
    over = sa.update(queues).where(queues.c.name == "video").values(paused_until=seconds_from_now(-1.0))
    client.database.run(lambda connection: connection.execute(over).close())
    paused = {queue["name"]: queue["paused"] for queue in http.get("/overview").json()["queues"]}
    assert paused == {"mail": True, "video": False}, "the pause of video is over"


def test_an_actor_of_some_queues_gets_their_figures(
    address: str, client: Client, peerd: Peerd, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = bucket_start(datetime.now(UTC), MINUTE) - timedelta(minutes=2)
    other = AttemptTotals({"done": 5}, 5.0, Histogram.of([0.5] * 5), Histogram.of([1.0] * 5))
    client.database.run(
        write_buckets, [BucketRow(MINUTE, at, queue, "send", 1, 7, other) for queue in ("mail", "secret")]
    )
    tokens = {
        "mail": client.tokens.create("mail", ["view"], queues=["mail"]).secret,
        "both": client.tokens.create("both", ["view"], queues=["mail", "video"]).secret,
        "none": client.tokens.create("none", ["view"], queues=["unused"]).secret,
    }
    done = {"mail": {"mail": 5}, "both": {"mail": 5, "video": 36}, "none": {}}
    with httpx.Client(base_url=f"{address}/api/v1") as http:
        for name, secret in tokens.items():
            http.headers.update(bearer(secret))
            rows = http.get("/statistics").json()
            assert {row["queue"]: row["figures"]["done"] for row in rows} == done[name]
            for path in ("/statistics", "/statistics/series"):
                for by in ("total", "node", "handler"):
                    rows = http.get(path, params={"by": by, "since": "30m"}).json()
                    assert sum(row["figures"]["done"] for row in rows) == sum(done[name].values()), (path, by)
                assert problem(http.get(path, params={"queue": "secret"})) == (403, "NotPermitted")
            for path in ("/overview", "/statistics/depths", "/statistics/depths?queue=secret"):
                assert problem(http.get(path)) == (403, "NotPermitted"), path
        http.headers.update(bearer(tokens["both"]))
        points = http.get("/statistics/depths", params={"queue": "video"}).json()
        assert [(point["count"], point["queue"]) for point in points] == [(5, "video")]
        [row] = http.get("/statistics", params={"queue": "video"}).json()
        assert row["figures"]["done"] == 36
    monkeypatch.setenv("PEERD_TOKEN", tokens["mail"])
    listed = peerd("queues", "list", "--json", "--server", address).json
    assert [(queue["name"], queue["last_ten_minutes"]["done"]) for queue in listed] == [("mail", 5)]


def test_what_nothing_can_answer_is_refused(http: httpx.Client) -> None:
    wrong = {
        "?since=1s": 422,
        "?since=99999999d": 422,
        "?since=-1h": 422,
        "?by=colour": 422,
        "?node=nobody": 404,
        "?name=%00": 422,
        "/series?step=7m": 422,
        "/series?most=0": 422,
        "/series?most=1&by=handler": 200,
        "/depths?queue=<b>": 422,
        "/depths?unknown=1": 422,
    }
    assert {query: http.get(f"/statistics{query}").status_code for query in wrong} == wrong
