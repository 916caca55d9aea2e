from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerd.domain.errors import InvalidSchedule
from peerd.domain.trigger import Cron, Interval
from tests.support.rows import rows

ANCHOR = datetime(2026, 1, 1, tzinfo=UTC)
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata")
EXPRESSIONS = ("30 2 * * *", "15 30 2 * * *", "*/15 * * * *", "*/20 * * * * *", "10,40 1-3 * * *", "0 0 L * *")
moments = st.datetimes(datetime(2026, 1, 1), datetime(2027, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001 - as it wants them


def ticks(cron: Cron, start: datetime, end: datetime) -> list[datetime]:
    found = []
    while (following := cron.after(start)) is not None and following < end:
        found.append(start := following)
    return found


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@given(st.floats(0.1, 1e4), st.integers(0, 10**5))
def test_the_ticks_of_an_interval_do_not_drift(seconds: float, number: int) -> None:
    interval = Interval(seconds)
    tick = ANCHOR + number * interval.step
    following = interval.after(tick, ANCHOR)
    assert following is None or following == ANCHOR + (number + 1) * interval.step
    assert interval.after(tick + interval.step / 2, ANCHOR) == following


def test_an_interval_begins_one_interval_after_its_anchor_and_may_be_long_but_not_short() -> None:
    interval = Interval(60)
    assert interval.after(ANCHOR - timedelta(days=1), ANCHOR) == ANCHOR + timedelta(minutes=1)
    assert interval.latest(ANCHOR + timedelta(seconds=59), ANCHOR) is None
    assert interval.latest(ANCHOR + timedelta(seconds=121), ANCHOR) == ANCHOR + timedelta(minutes=2)
    longer_than_31_bits = Interval(2**31 / 1000 + 0.25)
    assert longer_than_31_bits.after(ANCHOR, ANCHOR) == ANCHOR + timedelta(milliseconds=2**31 + 250)
    assert Interval(100 * 365 * 86_400.0).after(ANCHOR, ANCHOR) is None
    with pytest.raises(InvalidSchedule, match=r"interval: 0\.01 s is shorter than 0\.1 s"):
        Interval(0.01)


@given(st.sampled_from(EXPRESSIONS), st.sampled_from(ZONES), moments)
def test_the_latest_tick_is_the_one_before_the_next(expression: str, zone: str, moment: datetime) -> None:
    cron = Cron(expression, zone)
    following, latest = cron.after(moment), cron.latest(moment)
    assert following is not None
    assert latest is not None
    assert latest <= moment < following
    assert cron.after(latest) == following
    assert cron.latest(following) == following


def test_the_seconds_come_first() -> None:
    found = ticks(Cron("*/20 5 * * * *"), at("2026-01-01T00:00"), at("2026-01-01T01:05:21"))
    assert found[:3] == [at(f"2026-01-01T00:05:{second:02}") for second in (0, 20, 40)]
    assert found[3:] == [at("2026-01-01T01:05:00"), at("2026-01-01T01:05:20")]


def test_a_time_that_a_day_does_not_have_ticks_after_the_gap_and_one_that_it_has_twice_ticks_once() -> None:
    for days, expected in (
        (("2026-03-28", "2026-03-31"), ("2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30")),
        (("2026-10-24", "2026-10-27"), ("2026-10-24T00:30", "2026-10-25T00:30", "2026-10-26T01:30")),
    ):
        for expression, second in (("30 2 * * *", 0), ("7 30 2 * * *", 7)):
            found = ticks(Cron(expression, "Europe/Berlin"), *(at(f"{day}T00:00") for day in days))
            assert found == [at(one) + timedelta(seconds=second) for one in expected]


@rows("day", ["2026-03-29", "2026-10-25"])
def test_a_schedule_in_minutes_ticks_through_both_clock_changes(day: str) -> None:
    start = at(f"{day}T00:00") - timedelta(hours=3)
    found = ticks(Cron("*/15 * * * *", "Europe/Berlin"), start, start + timedelta(hours=9))
    assert {b - a for a, b in pairwise(found)} == {timedelta(minutes=15)}


@rows("expression, words", [
    ("61 * * * *", "bad minute"), ("* * *", "wrong number of fields"), ("", "wrong number of fields"),
    ("0 0 30 2 *", "bad day-of-month"), ("x" * 10_000, "wrong number"), ("60 * * * * *", "bad second"),
])  # fmt: skip
def test_a_bad_expression_is_refused_with_the_remedy(expression: str, words: str) -> None:
    with pytest.raises(InvalidSchedule, match=words):
        Cron(expression)


@rows("zone", ["Europe/Nowhere", "", "../../etc", "\0", "Europe"])
def test_a_zone_that_does_not_exist_is_refused(zone: str) -> None:
    with pytest.raises(InvalidSchedule, match="is no time zone here"):
        Cron("* * * * *", zone)
