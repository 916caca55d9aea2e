from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerd.storage.disk.content_id import EPOCH, ContentId, new_content_id, parse_content_id


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_the_text_of_an_id_is_parsed_to_the_same_id_and_ordered_as_it(number: int, other: int) -> None:
    content = ContentId(number)
    assert (content < ContentId(other)) == (str(content) < str(ContentId(other)))
    assert parse_content_id(str(content)) == content
    first, second = content.folders
    assert (len(first), len(second)) == (4, 3)
    assert str(content).startswith(first + second)


@given(st.text(max_size=20) | st.from_regex(r"[0-9A-Fa-f]{15,17}"))
def test_a_text_is_an_id_or_refused(text: str) -> None:
    try:
        content = parse_content_id(text)
    except ValueError:
        return
    assert str(content) == text


def test_what_is_no_id_is_refused() -> None:
    short, long, capital = "0191b2c3d4e5f60", "0191b2c3d4e5f6077", "0191B2C3D4E5F607"
    signs = "-191b2c3d4e5f607", "0x91b2c3d4e5f607", "0191b2c3_4e5f607", "0191b2c3d4e5f607\n", "0191b2c3d4e5f60٣"
    for text in ("", short, long, capital, "8000000000000000", *signs, "../../etc/passwd", " " * 16):
        with pytest.raises(ValueError, match="no content id"):
            parse_content_id(text)
    for number in (-1, 2**63):
        with pytest.raises(ValueError, match="63 bits"):
            ContentId(number)


def test_a_new_id_begins_with_its_time_and_ends_with_random_bits() -> None:
    ids = {new_content_id(EPOCH + 1.5) for _ in range(100)}
    assert len(ids) > 90
    assert {content.number >> 22 for content in ids} == {1500}
    for now in (EPOCH - 1, EPOCH + 2**41 / 1000 + 1):
        with pytest.raises(ValueError, match="set the clock"):
            new_content_id(now)
