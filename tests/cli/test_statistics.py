"""`peerd stats`, and the rates in `peerd queues list` and `peerd status`."""

from __future__ import annotations

from datetime import timedelta

import pytest

from peerd import Client
from peerd.domain.attempt_totals import AttemptTotals
from peerd.domain.histogram import Histogram
from peerd.store.statistics.buckets import BucketRow, write_buckets
from peerd.store.statistics.steps import MINUTE, bucket_start
from tests.cli.conftest import Peerd


@pytest.fixture
def history(client: Client) -> None:
    """Three minutes of two handlers in two queues."""
    present = bucket_start(client.now(), MINUTE)
    for minutes in (1, 2, 3):
        good = AttemptTotals({"done": 60}, 30.0, Histogram.of([0.5] * 60), Histogram.of([20.0] * 60))
        bad = AttemptTotals(
            {"done": 6, "failed": 3, "dead": 3}, 0.0, Histogram.of([9.0] * 12), Histogram.of([0.01] * 12)
        )
        rows = [
            BucketRow(MINUTE, present - timedelta(minutes=minutes), "video", "transcode", 1, 7, good),
            BucketRow(MINUTE, present - timedelta(minutes=minutes), "mail", "\x1b[31msend", 1, 7, bad),
        ]
        client.database.run(write_buckets, rows)


@pytest.mark.usefixtures("history")
def test_statistics_are_a_table_by_queue_and_by_handler_are_filtered_and_are_json(peerd: Peerd) -> None:
    out = peerd("stats").out
    lines = [line.split() for line in out.splitlines()]
    assert lines[0][:4] == ["queue", "done", "done/min", "failed"]
    assert [line[0] for line in lines[1:]] == ["video", "mail"], "the busiest is the first"
    assert lines[1][1] == "180"
    assert lines[2][3:5] == ["18", "50.0%"]
    out = peerd("stats", "--by", "handler", "--since", "10m").out
    assert "?[31msend" in out
    assert "\x1b" not in out
    assert set(out) - set(map(chr, range(128))) <= {"–"}
    answer = peerd("stats", "--queue", "mail", "--json").json
    assert [(row["queue"], row["figures"]["done"]) for row in answer["rows"]] == [("mail", 18)]
    assert [point["figures"]["done"] for point in answer["series"]] == [6, 6, 6]
    assert answer["rows"][0]["figures"]["failure_share"] == 0.5
    assert "no attempt has ended within 2m" in peerd("stats", "--queue", "none", "--since", "2m").out


@pytest.mark.usefixtures("client")
def test_what_nothing_can_answer_is_an_error(peerd: Peerd) -> None:
    for option, value, status in (
        ("--by", "colour", 2),
        ("--since", "soon", 2),
        ("--since", "1s", 2),
        ("--queue", "a b", 2),
        ("--node", "elsewhere", 1),
    ):
        assert value in peerd("stats", option, value, "--json", status=status).error["message"]


@pytest.mark.usefixtures("history")
def test_queues_are_listed_with_their_rates_and_the_status_shows_what_is_wrong(peerd: Peerd, client: Client) -> None:
    client.enqueue("mail")
    client.enqueue("new")
    assert {"done/min", "failed/min"} <= set(peerd("queues", "list").out.split())
    figures = {queue["name"]: queue["last_ten_minutes"] for queue in peerd("queues", "list", "--json").json}
    assert figures["mail"]["done"] == 18
    assert figures["new"] is None
    out = peerd("status").out
    for words in ("done/min", "no node is active: no task runs", "50% of the last 36 attempts of mail failed"):
        assert words in out
    overview = peerd("status", "--json").json["cluster"]["statistics"]
    assert overview["figures"]["done"] == 198
    assert overview["problems"]
