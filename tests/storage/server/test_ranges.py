"""Ranges and conditions of requests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerd.storage.server.ranges import (
    ContentRange,
    RangeNotSatisfiable,
    failed_condition,
    http_date,
    parse_range,
    range_still_holds,
)

PUT_AT = datetime(2026, 5, 1, 12, 0, 0, 500_000, tzinfo=UTC)
TAGS = {"a-tag", "a-hash"}


def test_a_range_of_ten_bytes() -> None:
    table: list[tuple[str, tuple[int, int] | None]] = [
        ("bytes=0-0", (0, 1)),
        ("bytes=0-99", (0, 10)),
        ("bytes=9-", (9, 10)),
        ("bytes=-1", (9, 10)),
        ("bytes = 2 - 3", (2, 4)),
        ("bytes=3-2", None),
        ("bytes=-", None),
        ("bytes=0-1,4-5", None),
        ("", None),
    ]
    for text, expected in table:
        assert parse_range(text, 10) == (None if expected is None else ContentRange(*expected)), text
    for text, size in (("bytes=10-", 10), ("bytes=0-", 0), ("bytes=-0", 10), ("bytes=-5", 0)):
        with pytest.raises(RangeNotSatisfiable):
            parse_range(text, size)


@given(st.text(), st.integers(0, 100))
def test_any_text_gives_a_range_within_the_content_or_none(text: str, size: int) -> None:
    for header in (text, f"bytes={text}"):
        try:
            found = parse_range(header, size)
        except RangeNotSatisfiable:
            continue
        assert found is None or 0 <= found.start < found.stop <= size


BEFORE, SAME, AFTER = (http_date(PUT_AT + timedelta(seconds=seconds)) for seconds in (-5, 0, 5))


def test_conditions_are_those_of_rfc_9110() -> None:
    table: list[tuple[dict[str, str], int | None]] = [
        ({}, None),
        ({"if-match": '"a-tag"'}, None),
        ({"if-match": "*"}, None),
        ({"if-match": '"x"'}, 412),
        ({"if-match": '"a-tag"', "if-unmodified-since": BEFORE}, None),
        ({"if-unmodified-since": BEFORE}, 412),
        ({"if-unmodified-since": SAME}, None),
        ({"if-none-match": 'W/"a-tag"'}, 304),
        ({"if-modified-since": SAME}, 304),
        ({"if-modified-since": AFTER}, 304),
        ({"if-modified-since": BEFORE}, None),
        ({"if-modified-since": "garbage"}, None),
        ({"if-none-match": '"x"', "if-modified-since": AFTER}, None),
        ({"if-match": '"x"', "if-none-match": '"a-tag"'}, 412),
    ]
    for headers, status in table:
        assert failed_condition(headers, TAGS, PUT_AT) == status, headers


def test_a_rest_is_sent_only_of_the_content_whose_beginning_the_client_has() -> None:
    assert range_still_holds({}, TAGS, PUT_AT)
    for condition, holds in (('"a-tag"', True), ('"x"', False), ('W/"a-tag"', False), (SAME, True), (AFTER, False)):
        assert range_still_holds({"if-range": condition}, TAGS, PUT_AT) is holds, condition
