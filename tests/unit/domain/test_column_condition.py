"""Conditions on columns, as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerd.domain.column_condition import (
    COLUMNS,
    MOST_CONDITIONS,
    ColumnCondition,
    TimeFromNow,
    parse_condition,
    parse_conditions,
)
from peerd.domain.errors import InvalidFilter
from peerd.domain.task import Task
from tests.support.rows import rows


def test_every_column_of_a_task_that_is_text_can_be_compared() -> None:
    assert set(COLUMNS) == set(Task.__struct_fields__) - {"body_bytes"}


@rows("text, value", [
    ("priority>=-5", -5), (" attempts = 3 ", 3), ("progress<0.5", 0.5), ("name= a = b", "a = b"), ("error~", ""),
    ("created_at>-1h30m", TimeFromNow(-5400.0)), ("start_at<+10s", TimeFromNow(10.0)), ("unique_key!=null", None),
])  # fmt: skip
def test_values_are_of_their_columns_type(text: str, value: object) -> None:
    assert parse_condition(text).value == value


@rows("text, problem", [
    ("", "no condition"), ("priority", "no condition"), ("priority=>3", "not a whole number"),
    ("claim_token=1", "there is no column"), ("body_bytes=1", "there is no column"),
    ("priority>=many", "not a whole number"), ("priority>=1.5", "not a whole number"),
    ("priority=" + "9" * 30, "not a whole number"), ("progress<nan", "not a number"),
    ("progress<1e999", "not a number"), ("status>done", "is equal"), ("status=finished", "none of scheduled"),
    ("priority~1", "is no text"), ("priority<null", "not < null"), ("created_at>yesterday", "neither a time"),
    ("created_at>2026-05-01T12:00:00", "no time zone"), ("created_at>0001-01-01T00:00:00+14:00", "not between"),
    ("created_at>-99999999d", "ten years"), ("name=\x00", "NUL"), ("name=\ud800", "surrogate"),
    ("name=" + "a" * 1001, "more than 1000"),
])  # fmt: skip
def test_what_no_row_can_meet_is_refused_with_what_is_allowed(text: str, problem: str) -> None:
    with pytest.raises(InvalidFilter, match=problem):
        parse_condition(text)


OPERATORS = st.sampled_from(["=", "!=", "<", "~"])


@given(st.text() | st.builds("{}{}{}".format, st.sampled_from(COLUMNS), OPERATORS, st.text()))
def test_any_text_is_a_condition_or_refused(text: str) -> None:
    try:
        condition = parse_condition(text)
    except InvalidFilter:
        return
    assert isinstance(condition, ColumnCondition)


def test_a_filter_has_a_limited_number_of_conditions() -> None:
    with pytest.raises(InvalidFilter, match="more than"):
        parse_conditions(["id>1"] * (MOST_CONDITIONS + 1))
    with pytest.raises(InvalidFilter, match="not a list"):
        parse_conditions("id>1")
