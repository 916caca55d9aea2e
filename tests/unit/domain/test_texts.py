from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerd.domain import column_condition
from peerd.domain.bind_address import SystemdSocket, TcpAddress, UnixAddress, parse_bind_address
from peerd.domain.column_condition import ColumnCondition, TimeFromNow, parse_condition
from peerd.domain.errors import InvalidFilter
from peerd.domain.task import Task
from peerd.domain.units import format_duration, format_size, parse_duration, parse_size
from tests.support.rows import rows

Parse = Callable[[Any], object]


def value_of(condition: str) -> object:
    return parse_condition(condition).value


READ: list[tuple[Parse, dict[Any, object]]] = [
    (parse_duration, {
        "10s": 10, "5m": 300, "2h": 7200, "3d": 259_200, "1w": 604_800, "500ms": 0.5, "1h30m": 5400, "1h 30m": 5400,
        " 2.5 s ": 2.5, "30": 30, 0: 0, 1.5: 1.5,
    }),
    (parse_size, {"500MB": 500_000_000, "1 KiB": 1024, "2gb": 2_000_000_000, "0.5k": 500, "12": 12, 7: 7}),
    (parse_bind_address, {
        "127.0.0.1:8080": TcpAddress("127.0.0.1", 8080), "localhost:80": TcpAddress("localhost", 80),
        "[::]:443": TcpAddress("::", 443), "[0:0::1]:1": TcpAddress("::1", 1), ":0": TcpAddress("", 0),
        "unix:relative.sock": UnixAddress("relative.sock"), "unix:/run/a:b": UnixAddress("/run/a:b"),
        "systemd:site.socket": SystemdSocket("site.socket"),
    }),
    (value_of, {
        "priority>=-5": -5, " attempts = 3 ": 3, "progress<0.5": 0.5, "name= a = b": "a = b", "error~": "",
        "created_at>-1h30m": TimeFromNow(-5400.0), "start_at<+10s": TimeFromNow(10.0), "unique_key!=null": None,
    }),
]  # fmt: skip
NO_DURATION = "is not a duration: give seconds, or text such as"
NO_SIZE = "is not a size: give bytes, or text such as"
REFUSED: list[tuple[Parse, dict[str, list[Any]]]] = [
    (parse_duration, {NO_DURATION: [
        "", "s", "10 parsecs", "-1s", "30m1h", "1h1h", "1e3", "10s!", -1, math.nan, math.inf, True, None, [1],
    ]}),
    (parse_size, {NO_SIZE: ["", "MB", "-1MB", "5 apples", -1, True, 1.5, None]}),
    (parse_bind_address, {
        "names no port": ["", "8080", "localhost"],
        "is no port": ["127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:٣"],
        "an IPv6 address stands in brackets": ["::1:80"],
        "is no IPv6 address": ["[::g]:80"],
        "is neither an address nor the name of a host": [
            "[::1%lo:80", "http://localhost:80", "a b:80", "-a:80", "x" * 100_000 + ":80",
        ],
        "names no file": ["unix:", "unix:/run/", "unix:/a\0b"],
        "at most 107 bytes": ["unix:" + "ü" * 60],
        "is no name of a systemd socket": ["systemd:", "systemd:a:b"],
    }),
    (parse_condition, {
        "no condition": ["", "priority"], "there is no column": ["claim_token=1", "body_bytes=1"],
        "not a whole number": ["priority=>3", "priority>=many", "priority>=1.5", "priority=" + "9" * 30],
        "not a number": ["progress<nan", "progress<1e999"], "is equal": ["status>done"],
        "none of scheduled": ["status=finished"], "is no text": ["priority~1"], "not < null": ["priority<null"],
        "neither a time": ["created_at>yesterday"], "no time zone": ["created_at>2026-05-01T12:00:00"],
        "not between": ["created_at>0001-01-01T00:00:00+14:00"], "ten years": ["created_at>-99999999d"],
        "NUL": ["name=\x00"], "surrogate": ["name=\ud800"], "more than 1000": ["name=" + "a" * 1001],
    }),
    (column_condition.parse_conditions, {
        "more than": [["id>1"] * (column_condition.MOST_CONDITIONS + 1)], "not a list": ["id>1"],
    }),
]  # fmt: skip


@rows("parse, text, value", [(parse, *one) for parse, values in READ for one in values.items()])
def test_a_text_of_each_form_is_read(parse: Parse, text: object, value: object) -> None:
    assert parse(text) == value


@rows("parse, problem, text", [
    (parse, problem, text) for parse, refused in REFUSED for problem, texts in refused.items() for text in texts
])  # fmt: skip
def test_anything_else_is_refused_with_the_forms_that_are_accepted(parse: Parse, problem: str, text: object) -> None:
    with pytest.raises(InvalidFilter if "condition" in parse.__name__ else ValueError, match=problem) as refused:
        parse(text)
    assert len(str(refused.value)) < 400 or parse is not parse_bind_address


@given(st.integers(0, 3_599_999), st.floats(0, 1e9), st.integers(0, 10**17))
def test_a_written_value_is_read_as_the_given_one_or_one_near_it(milliseconds: int, seconds: float, size: int) -> None:
    assert round(parse_duration(format_duration(milliseconds / 1000)) * 1000) == milliseconds
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=0.05, abs=0.001)
    assert parse_size(format_size(size)) == pytest.approx(size, rel=0.01)
    assert format_duration(-90) == "-1m30s"


def test_every_column_of_a_task_that_is_text_can_be_compared() -> None:
    assert set(column_condition.COLUMNS) == set(Task.__struct_fields__) - {"body_bytes"}


COLUMNS, OPERATORS = st.sampled_from(column_condition.COLUMNS), st.sampled_from(["=", "!=", "<", "~"])


@given(st.text() | st.builds("{}{}{}".format, COLUMNS, OPERATORS, st.text()))
def test_any_text_is_a_condition_or_refused(text: str) -> None:
    with suppress(InvalidFilter):
        assert isinstance(parse_condition(text), ColumnCondition)
