"""Ranges and conditions of requests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from peerd.domain.files import FileState, StoredFile
from peerd.storage.server.ranges import (
    ContentRange,
    answer_to_get,
    answer_with_range,
    http_date,
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
        answer = answer_with_range(text, 10)
        assert answer.status == (200 if expected is None else 206), text
        assert answer.part == ContentRange(*(expected or (0, 10))), text
    for text, size in (("bytes=10-", 10), ("bytes=0-", 0), ("bytes=-0", 10), ("bytes=-5", 0)):
        assert answer_with_range(text, size) == (416, {"content-range": f"bytes */{size}"}, None)


@given(st.text(), st.integers(0, 100))
def test_any_text_gives_a_range_within_the_content_or_none(text: str, size: int) -> None:
    for header in (text, f"bytes={text}"):
        status, _, found = answer_with_range(header, size)
        assert found == (0, size) if status == 200 else found is None or 0 <= found.start < found.stop <= size


BEFORE, SAME, AFTER = (http_date(PUT_AT + timedelta(seconds=seconds)) for seconds in (-5, 0, 5))


def test_conditions_are_those_of_rfc_9110() -> None:
    file = StoredFile(
        id=1, bucket="films", key="f", version=1, state=FileState.STORED, class_name="default", size=10,
        blake3="a-hash", etag="a-tag", created_at=PUT_AT,
    )  # fmt: skip
    table: list[tuple[dict[str, str], int | None]] = [
        ({}, None),
        ({"if-match": '"a-tag"'}, None),
        ({"if-match": "*"}, None),
        ({"if-match": '"x"'}, 412),
        ({"if-match": 'W/"a-tag"'}, 412),
        ({"if-match": 'W/"x", "a-tag"'}, None),
        ({"if-match": '"*"'}, 412),
        ({"if-none-match": '"*"'}, None),
        ({"if-none-match": "*"}, 304),
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
        assert answer_to_get("GET", headers, file).status == (status or 200), headers
    assert answer_to_get("GET", {"range": "bytes=0-1"}, file).status == 206
    assert answer_to_get("HEAD", {"range": "bytes=0-1"}, file).headers == {"content-length": "10"}


def test_a_rest_is_sent_only_of_the_content_whose_beginning_the_client_has() -> None:
    assert range_still_holds({}, TAGS, PUT_AT)
    for condition, holds in (('"a-tag"', True), ('"x"', False), ('W/"a-tag"', False), (SAME, True), (AFTER, False)):
        assert range_still_holds({"if-range": condition}, TAGS, PUT_AT) is holds, condition
