"""What people, programs and enemies send."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from hypothesis import strategies as st

WORDS = (
    "", " ", "\x00", "a\x00b", "\ud800", "a\udcff", "\x1b[31m", "a\nb", "é", "\U0001f600", "-", "--help", "a" * 200,
    "a" * 201, "é" * 101, "x" * 70_000, "'; DROP TABLE tasks; --", "%s %(a)s {0} :name", "../etc/passwd", "[red]a[/]",
    "1e999", "NaN", "null", "unfinished", "forever", "10m", "-1s", "99999999999999999w", "1h1h", "٣", "2026-02-30",
)  # fmt: skip
NUMBERS = (0, 1, -1, 10, 2**31 - 1, 2**31, -(2**31), 2**53, 2**63 - 1, 2**63, -(2**63), -(2**63) + 1, 2**70, 10**4000)
FLOATS = (0.0, -0.0, 1e-320, 1e308, -1e308, float("inf"), float("-inf"), float("nan"), 0.5)
MOMENTS = (
    datetime.min.replace(tzinfo=UTC),
    datetime.max.replace(tzinfo=UTC),
    datetime.min.replace(tzinfo=timezone(timedelta(hours=23, minutes=59))),
    datetime.max.replace(tzinfo=timezone(-timedelta(hours=23, minutes=59))),
    datetime(2026, 11, 21, 9, 30),  # noqa: DTZ001 - it is what may not be given
    datetime(2037, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(2038, 1, 1, tzinfo=UTC),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(1971, 1, 1, tzinfo=UTC),
)


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


words = st.sampled_from(WORDS) | st.text(max_size=30) | st.text(st.characters(), max_size=5)
numbers = st.sampled_from(NUMBERS) | st.integers()
floats = st.sampled_from(FLOATS) | st.floats()
moments = st.sampled_from(MOMENTS) | st.datetimes(timezones=st.just(UTC))
json = st.recursive(
    st.none() | st.booleans() | numbers | floats | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
anything = (
    json
    | moments
    | st.binary(max_size=20)
    | st.sampled_from((object(), object, ..., nested(10_000), {1: 2}, {"a"}, timedelta(days=1), 1j))
)
