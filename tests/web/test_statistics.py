"""Statistics over HTTP are those of the client."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import httpx
import pytest
import sqlalchemy as sa

from peerd import Client
from peerd.domain.attempt_totals import AttemptTotals, Histogram
from peerd.store.attempt_series import BucketRow, write_buckets
from peerd.store.queue_states import sample_depths, write_depths
from peerd.store.schema.tables import queues
from peerd.store.schema.types import seconds_from_now
from peerd.store.time_series import MINUTE, bucket_start
from tests.web.access_world import bearer, problem


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


def test_attempts_are_summed_by_group_and_minute(http: httpx.Client) -> None:
    [queue] = http.get("/statistics").json()
    assert (queue["queue"], queue["name"], queue["node"]) == ("video", None, None)
    assert (queue["figures"]["done"], queue["figures"]["dead"], queue["figures"]["failure_share"]) == (36, 4, 0.1)
    assert queue["figures"]["run"]["p95"] == pytest.approx(2.0, rel=0.19)
    nodes = http.get("/statistics", params={"by": "node", "name": "probe", "since": "10m"}).json()
    assert [(row["node"], row["figures"]["done"]) for row in nodes] == [("node 2", 6)]
    points = http.get("/statistics/series", params={"since": "30m"}).json()
    assert [point["figures"]["done"] for point in points] == [30, 6]


def test_the_overview_is_that_of_the_sample(http: httpx.Client, client: Client) -> None:
    overview = http.get("/overview").json()
    assert overview["counts"] == {"pending": 6, "scheduled": 1}
    worst = overview["findings"][0]
    assert (overview["verdict"], worst["message"]) == ("red", "no node is active: no task runs")
    assert overview["figures"]["done"] == 36
    [video] = [queue for queue in overview["queues"] if queue["name"] == "video"]
    assert (video["counts"], video["known"], video["figures"]["done"]) == ({"pending": 5}, False, 36)
    why = http.get("/queues/video/why").json()
    assert ([one["about"] for one in why["reasons"]], why["prospect"]) == ([{"queue": "video"}], None)
    for name in ("video", "mail"):
        client.queues.pause(name, "1h")
    over = sa.update(queues).where(queues.c.name == "video").values(paused_until=seconds_from_now(-1.0))
    client.database.run(sa.Connection.execute, over)
    paused = {queue["name"]: queue["paused"] for queue in http.get("/overview").json()["queues"]}
    assert paused == {"mail": True, "video": False}, "the pause of video is over"


def test_an_actor_of_some_queues_gets_their_figures(address: str, client: Client) -> None:
    at = bucket_start(datetime.now(UTC), MINUTE) - timedelta(minutes=2)
    other = AttemptTotals({"done": 5}, 5.0, Histogram.of([0.5] * 5), Histogram.of([1.0] * 5))
    more = [BucketRow(MINUTE, at, queue, "send", 1, 7, other) for queue in ("mail", "secret")]
    client.database.run(write_buckets, more)
    done = {("mail",): {"mail": 5}, ("mail", "video"): {"mail": 5, "video": 36}, ("unused",): {}}
    with httpx.Client(base_url=f"{address}/api/v1") as http:
        for scope, expected in done.items():
            http.headers.update(bearer(client.tokens.create("t", ["view"], queues=scope).secret))
            rows = http.get("/statistics").json()
            assert {row["queue"]: row["figures"]["done"] for row in rows} == expected
            for path in ("/statistics", "/statistics/series"):
                for by in ("total", "node", "handler"):
                    rows = http.get(path, params={"by": by, "since": "30m"}).json()
                    assert sum(row["figures"]["done"] for row in rows) == sum(expected.values()), (path, by)
                assert problem(http.get(path, params={"queue": "secret"})) == (403, "NotPermitted")
            for path in ("/overview", "/statistics/depths", "/statistics/depths?queue=secret"):
                assert problem(http.get(path)) == (403, "NotPermitted"), path
    secret = client.tokens.create("t", ["view"], queues=["mail", "video"]).secret
    points = httpx.get(f"{address}/api/v1/statistics/depths?queue=video", headers=bearer(secret)).json()
    assert [(point["status"], point["count"], point["queue"]) for point in points] == [("pending", 5, "video")]


def test_what_nothing_can_answer_is_refused(http: httpx.Client) -> None:
    wrong = dict.fromkeys(
        ("?since=1s", "?since=-1h", "?by=colour", "?name=%00", "/series?step=7m", "/series?most=0"), 422
    )
    wrong |= {"?node=nobody": 404, "/series?most=1&by=handler": 200, "/depths?queue=<b>": 422}
    assert {query: http.get(f"/statistics{query}").status_code for query in wrong} == wrong
