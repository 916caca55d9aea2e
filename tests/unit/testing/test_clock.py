from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from itertools import product

import pytest

from peerd.store.schema.types import SQLITE_TIME_FORMAT
from peerd.testing import Clock
from peerd.testing.clock import SqliteDateFunctions

Pair = tuple[sqlite3.Connection, sqlite3.Connection, Clock]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A connection whose functions read a clock, one that has the built-in ones, and the clock."""
    clock = Clock(datetime(2026, 3, 4, 5, 6, 7, 89_999, tzinfo=UTC))
    with closing(sqlite3.connect(":memory:")) as governed, closing(sqlite3.connect(":memory:")) as plain:
        functions = SqliteDateFunctions(governed, clock)
        yield governed, plain, clock
        functions.close()


def evaluate(connection: sqlite3.Connection, expression: str, *values: object) -> object:
    return connection.execute(f"SELECT {expression}", values).fetchone()[0]


def test_a_clock_of_instants_stands_still_until_it_is_advanced_in_the_range_of_every_database() -> None:
    clock = Clock()
    began = clock.now
    for span in ("5m", 1.5, timedelta(milliseconds=-500)):
        clock.advance(span)
    assert clock.now - began == timedelta(minutes=5, seconds=1)
    with pytest.raises(ValueError, match="not between"):
        clock.advance("9000d")
    assert clock.now - began == timedelta(minutes=5, seconds=1)
    in_utc = Clock(datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))).now
    assert (in_utc, in_utc.tzinfo) == (datetime(2026, 1, 1, tzinfo=UTC), UTC)
    for moment in (datetime(2026, 1, 1), datetime(1960, 1, 1, tzinfo=UTC), datetime(2040, 1, 1, tzinfo=UTC)):  # noqa: DTZ001
        with pytest.raises(ValueError, match=r"time zone|not between"):
            Clock(moment)


def test_each_expression_of_the_present_reads_the_clock(pair: Pair) -> None:
    answers = {
        "strftime('%Y-%m-%d %H:%M:%f', 'now')": "2026-03-04 05:06:07.089",
        "strftime('%Y-%m-%d %H:%M:%f', 'now', '-7.0885 seconds')": "2026-03-04 05:06:00.000",
        "strftime('%H:%M', 'now', 'start of day', '+1 hour')": "01:00", "strftime('%s')": "1772600767",
        "CURRENT_TIMESTAMP": "2026-03-04 05:06:07", "CURRENT_DATE": "2026-03-04", "CURRENT_TIME": "05:06:07",
        "datetime('now', '+1 day')": "2026-03-05 05:06:07", "date()": "2026-03-04",
        "round((julianday('now') - julianday('2026-03-04')) * 86400)": 18367.0,
    }  # fmt: skip
    governed, _, clock = pair
    assert {expression: evaluate(governed, expression) for expression in answers} == answers
    clock.advance(10)
    assert evaluate(governed, "strftime('%s')") == "1772600777"  # a statement that is run again reads it again


def test_an_expression_without_the_present_has_its_usual_value(pair: Pair) -> None:
    values = (
        "2026-02-02 03:04:05.678", "2026-02-31 00:00:00.000", "2026-02-02", "2026-02-02T03:04:05Z", "12:30", "nonsense",
        "2026-13-01 00:00:00.000", "2026-02-02 03:04:05.6789", "", None, 2_461_041.5, 7, -1, b"2026-02-02", "nower",
        "2026-02-02 03:04:05.678 ", "9999-12-31 23:59:59.999", "2026-02-02 03:04:05.678+02:00", 1e300,
    )  # fmt: skip
    forms = (SQLITE_TIME_FORMAT, "%s", "%J", "%q", None, 5)
    modifiers = ((), ("+1 day",), ("-0.5 seconds",), ("unixepoch",), ("wrong",), (None,), (3,))
    governed, plain, _ = pair
    drawn = random.Random(8)
    moments = [
        f"{drawn.randrange(1970, 2040)}-{drawn.randrange(1, 13):02}-{drawn.randrange(1, 32):02} "
        f"{drawn.randrange(25):02}:{drawn.randrange(60):02}:{drawn.randrange(61):02}.{drawn.randrange(1000):03}"
        for _ in range(1000)
    ]
    for form, value, more in (*product(forms, values, modifiers), *product(forms[:1], moments, [()])):
        expression = f"strftime({', '.join('?' * (2 + len(more)))})"
        answers = [evaluate(one, expression, form, value, *more) for one in (governed, governed, plain)]
        assert answers[0] == answers[1] == answers[2], (form, value, more)


def test_an_offset_in_seconds_from_now_equals_that_of_sqlite(pair: Pair) -> None:
    governed, plain, clock = pair
    drawn = random.Random(7)
    spans = [0.0, 0.0005, -0.0005, 0.0015, 1e-05, 1e9, -1e12, float("inf"), float("nan"), "x", None]
    spans += [drawn.uniform(-1e6, 1e6) for _ in range(500)] + [drawn.randrange(-(10**7), 10**7) for _ in range(500)]
    for span in spans:
        clock.set(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=drawn.randrange(10**13)))
        answer = evaluate(governed, f"strftime('{SQLITE_TIME_FORMAT}', 'now', (?) || ' seconds')", span)
        expected = evaluate(plain, f"strftime('{SQLITE_TIME_FORMAT}', ?, (?) || ' seconds')", clock.sqlite_text, span)
        assert answer == expected, span
