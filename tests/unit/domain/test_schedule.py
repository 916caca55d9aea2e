from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerd.domain.errors import InvalidSchedule, InvalidTask
from peerd.domain.schedule import (
    MAX_WAITING,
    Cron,
    FireTick,
    Interval,
    MissTick,
    RunStatus,
    Schedule,
    WaitForTick,
    decide_tick,
    initial_run_status,
    tick_jitter,
)
from tests.support.rows import rows

START = datetime(2026, 1, 1, tzinfo=UTC)


def schedule(**given_: Any) -> Schedule:
    trigger = {} if {"interval", "cron", "immediate"} & set(given_) else {"interval": 10.0}
    return Schedule(**{"name": "s", "run": "m:f", **trigger, **given_})


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def test_of_ticks_that_are_due_the_last_counts_and_one_that_is_too_late_is_missed() -> None:
    for given_, next_at, now, decided in (
        ({}, after(10), after(9.999), WaitForTick(after(10))),
        ({}, after(10), after(10), FireTick(after(10), after(20))),
        ({}, after(10), after(54), FireTick(after(50), after(60))),
        ({}, None, after(10), WaitForTick(None)),
        ({"immediate": True}, None, after(10), WaitForTick(None)),
    ):
        assert decide_tick(schedule(**given_), next_at, START, now, "") == decided
    late = {"cron": "0 3 * * *", "misfire_grace": 60.0}
    tick, following, now = at_three(1), at_three(2), at_three(1) + timedelta(hours=2)
    assert decide_tick(schedule(**late), tick, START, now, "") == MissTick(tick, following, 7200.0)
    made_up_for = schedule(**late, misfire="run_once")
    assert decide_tick(made_up_for, tick, START, now, "") == FireTick(tick, following)
    just = tick + timedelta(seconds=60)
    assert decide_tick(schedule(**late), tick, START, just, "") == FireTick(tick, following)
    a_week_later = at_three(8) + timedelta(hours=1)
    assert decide_tick(made_up_for, tick, START, a_week_later, "") == FireTick(at_three(8), at_three(9))


def at_three(day: int) -> datetime:
    return datetime(2026, 1, day, 3, tzinfo=UTC)


@given(st.floats(0, 10), st.integers(1, 1000), st.text(max_size=5))
def test_jitter_delays_a_tick_within_its_bounds_and_everywhere_alike(jitter: float, number: int, seed: str) -> None:
    tick = after(10 * number)
    delay = tick_jitter(jitter, seed, tick)
    assert timedelta() <= delay <= timedelta(seconds=jitter + 0.001)
    assert delay == tick_jitter(jitter, seed, tick)
    assert len({tick_jitter(10.0, seed + str(node), tick) for node in range(10)}) > 5
    spread = schedule(jitter=jitter, interval=10.0)
    assert decide_tick(spread, tick, START, tick + delay, seed) == FireTick(tick, after(10 * number + 10))
    if delay:
        assert decide_tick(spread, tick, START, tick + delay - timedelta(milliseconds=1), seed) == WaitForTick(
            tick + delay
        )


@rows("overlap, busy, waiting, status", [
    ("skip", False, 0, RunStatus.RUNNING), ("skip", True, 0, RunStatus.SKIPPED), ("queue", False, 0, RunStatus.RUNNING),
    ("queue", True, 0, RunStatus.WAITING), ("queue", False, 1, RunStatus.WAITING),
    ("queue", True, MAX_WAITING, RunStatus.SKIPPED), ("allow", True, 5, RunStatus.RUNNING),
])  # fmt: skip
def test_overlapping_runs_are_skipped_or_queued(overlap: Any, *, busy: bool, waiting: int, status: RunStatus) -> None:
    assert initial_run_status(overlap, busy=busy, waiting=waiting) is status


@rows("given_, words", [
    ({"run": None}, "give run, a function, or queue"), ({"queue": "q"}, "one of them"),
    ({"interval": 1.0, "cron": "* * * * *"}, "not both"), ({"interval": None, "immediate": False}, "when does it tick"),
    ({"interval": 1.0, "jitter": 2.0}, "2s is longer than the interval"),
    ({"type": "everywhere"}, "type: 'everywhere' is none of"),
    ({"run": None, "queue": "q", "type": "all"}, "enqueued once"),
    ({"run": None, "queue": "q", "timeout": 1.0}, "timeout: is for functions"), ({"cron": "never"}, "cron: 'never'"),
    ({"run": None, "queue": "no spaces"}, "queue: 'no spaces'"),
])  # fmt: skip
def test_keys_that_exclude_each_other_are_refused(given_: dict[str, Any], words: str) -> None:
    with pytest.raises((InvalidSchedule, InvalidTask), match=words):
        schedule(**given_)


def test_a_fingerprint_covers_all_fields() -> None:
    assert schedule().fingerprint == schedule().fingerprint
    others = ({"interval": 11.0}, {"run": "m:g"}, {"args": [1]}, {"overlap": "allow"}, {"enabled": False})
    assert len({schedule(**one).fingerprint for one in others} | {schedule().fingerprint}) == 6


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


def test_a_time_that_a_day_does_not_have_ticks_after_the_gap_and_one_that_it_has_twice_ticks_once() -> None:
    for days, expected in (
        (("2026-03-28", "2026-03-31"), ("2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30")),
        (("2026-10-24", "2026-10-27"), ("2026-10-24T00:30", "2026-10-25T00:30", "2026-10-26T01:30")),
    ):
        for expression, second in (("30 2 * * *", 0), ("7 30 2 * * *", 7)):
            found = ticks(Cron(expression, "Europe/Berlin"), *(at(f"{day}T00:00") for day in days))
            assert found == [at(one) + timedelta(seconds=second) for one in expected]
    for day in ("2026-03-29", "2026-10-25"):
        start = at(f"{day}T00:00") - timedelta(hours=3)
        found = ticks(Cron("*/15 * * * *", "Europe/Berlin"), start, start + timedelta(hours=9))
        assert {b - a for a, b in pairwise(found)} == {timedelta(minutes=15)}
    found = ticks(Cron("*/20 5 * * * *"), at("2026-01-01T00:00"), at("2026-01-01T01:05:21"))
    assert [(one.minute, one.second) for one in found] == [(5, 0), (5, 20), (5, 40), (5, 0), (5, 20)], (
        "seconds come first"
    )


NO_ZONE = "is no time zone here"


@rows("expression, zone, words", [
    ("61 * * * *", "UTC", "bad minute"), ("* * *", "UTC", "wrong number of fields"), ("", "UTC", "wrong number"),
    ("0 0 30 2 *", "UTC", "bad day-of-month"), ("60 * * * * *", "UTC", "bad second"),
    ("* * * * *", "Europe/Nowhere", NO_ZONE), ("* * * * *", "", NO_ZONE), ("* * * * *", "../../etc", NO_ZONE),
    ("* * * * *", "\0", NO_ZONE), ("* * * * *", "Europe", NO_ZONE),
])  # fmt: skip
def test_a_bad_expression_and_a_zone_that_does_not_exist_are_refused(expression: str, zone: str, words: str) -> None:
    with pytest.raises(InvalidSchedule, match=words):
        Cron(expression, zone)
