"""The rules of the record find what is wrong, and pass what may be."""

from __future__ import annotations

import pytest

from tests.faults.storage.file_record import ABSENT, FileRecord, SeenRead, UnknownMove

pytestmark = pytest.mark.slow
READS = (
    (ABSENT, 0.0, 0.5, True),
    (ABSENT, 1.5, 1.7, True),
    (ABSENT, 2.1, 2.2, False),
    ("one", 0.5, 0.9, False),
    ("one", 0.5, 1.1, True),
    ("one", 3.0, 4.0, True),
    ("one", 6.1, 7.0, False),
    ("one", 5.9, 7.0, True),
    ("two", 3.0, 4.9, False),
    ("two", 3.0, 5.1, True),
    ("two", 9.0, 9.9, True),
    ("other", 9.0, 9.9, False),
)
"""What was read, its begin and end, and whether that may be."""


def made() -> FileRecord:
    """The key `a` was put at 1 to 2, and overwritten at 5 to 6."""
    record = FileRecord()
    for digest, began, ended in (("one", 1.0, 2.0), ("two", 5.0, 6.0)):
        record.began({"a": digest}, began)
        record.acknowledged(["a"], ended)
    return record


def test_a_read_finds_what_was_there_while_it_ran() -> None:
    for row in READS:
        *read, is_right = row
        record = made()
        record.read(SeenRead("a", "n", *read))  # type: ignore[arg-type]
        assert (record.wrong_reads() == []) is is_right, row


def test_the_end_is_what_was_acknowledged_last() -> None:
    record = made()
    assert record.wrong_ends({"a": "two"}) == []
    assert record.wrong_ends({"a": "one"})
    assert record.wrong_ends({})
    assert record.wrong_ends({"a": "two", "b": "never put"})


def test_a_change_without_an_answer_may_take_effect_or_not_and_a_refused_one_may_not() -> None:
    record = made()
    record.began({"a": "three"}, 7.0)
    record.refused(["a"])
    assert record.wrong_ends({"a": "three"})
    record.began({"a": ABSENT}, 8.0)
    record.unknown(["a"])
    assert record.is_unknown("a")
    assert record.wrong_ends({"a": "two"}) == record.wrong_ends({}) == []
    assert record.wrong_ends({"a": "one"})


def test_a_file_whose_move_had_no_answer_is_at_one_of_two_keys() -> None:
    record = made()
    record.began({"a": ABSENT, "b": "two"}, 7.0)
    record.unknown(["a", "b"], UnknownMove("a", "b", "two"))
    assert record.wrong_ends({"a": "two"}) == record.wrong_ends({"b": "two"}) == []
    assert record.wrong_ends({"a": "two", "b": "two"})
    assert record.wrong_ends({})
    record.began({"b": ABSENT}, 8.0)
    record.acknowledged(["b"], 9.0)
    assert record.wrong_ends({}) == []
