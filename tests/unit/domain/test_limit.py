from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from peerd.domain.errors import InvalidFilter, InvalidLimit
from peerd.domain.limit import MAX_COUNT, MIN_PERIOD, Limit, Rate, parse_limit_columns
from peerd.domain.node_request import (
    MAX_WAIT,
    NodeCommand,
    ReloadArguments,
    ScaleArguments,
    StackArguments,
    StateArguments,
    decode_command,
    encode_command,
)
from peerd.domain.task import SPAN_LIMIT
from tests.support.rows import rows

periods = st.floats(MIN_PERIOD, SPAN_LIMIT, exclude_max=True)


@rows("text, rate", [
    ("100/1m", Rate(100, 60.0)), ("5/s", Rate(5, 1.0)), ("1000/h", Rate(1000, 3600.0)), ("10/30s", Rate(10, 30.0)),
    (" 7 / 1h30m ", Rate(7, 5400.0)), ("2/0.5s", Rate(2, 0.5)), ("3/ms", Rate(3, 0.001)), ("3/20", Rate(3, 20.0)),
    ("1/w", Rate(1, 604_800.0)), (Rate(4, 9.0), Rate(4, 9.0)),
])  # fmt: skip
def test_a_rate_is_read(text: str | Rate, rate: Rate) -> None:
    assert Rate.parse(text) == rate


@rows("value", [
    "", "/", "5", "5/", "/s", "-5/s", "1.5/s", "5/s/s", "5 per s", "five/s", "5/fortnight", "٣/s", 5, None, True,
    b"5/s",
])  # fmt: skip
def test_anything_else_is_refused_with_the_forms_that_are_accepted(value: object) -> None:
    with pytest.raises(InvalidLimit, match=r"^rate: .* is not a rate: write starts/period, such as '100/1m', '5/s'"):
        Rate.parse(value)


@rows("text, message", [
    ("0/s", "0 is not a number of starts from 1"), ("2147483648/s", "not a number of starts from 1 to 2147483647"),
    ("5/0s", "not a period from 0.001 s"), ("5/3651d", "to ten years"),
])  # fmt: skip
def test_a_rate_out_of_range_is_refused_with_the_range(text: str, message: str) -> None:
    with pytest.raises(InvalidLimit, match=message):
        Rate.parse(text)
    for period in (math.nan, math.inf, -1.0, 0.0, True, "1m"):
        with pytest.raises(InvalidLimit, match=r"^rate: "):
            Rate(1, period)  # type: ignore[arg-type]


@given(st.integers(1, MAX_COUNT), periods)
@example(1, 0.0015)
@example(1, 59.9996)
@example(1, 3600.0000000001)
def test_a_rate_is_written_so_that_it_is_read_again(starts: int, period: float) -> None:
    rate = Rate(starts, period)
    assert Rate.parse(str(rate)) == rate
    assert parse_limit_columns(starts, starts, period) == (starts, starts, period)
    assert parse_limit_columns(starts, None, None) == (starts, None, None)


@rows("parts, field, message", [
    ({"queue": "no spaces", "running": 1}, "queue", "is not 1 to 200 of"),
    ({"queue": "q"}, "running", "give running, rate or both; to take a limit away, remove it"),
    ({"queue": "q", "running": -1}, "running", "from 0 to 2147483647"),
    ({"queue": "q", "running": MAX_COUNT + 1}, "running", "from 0 to 2147483647"),
    ({"queue": "q", "running": True}, "running", "True is not a number"),
    ({"queue": "q", "running": 1.5}, "running", "1.5 is not a number"),
    ({"queue": "q", "running": 1, "key": "a\x00"}, "key", "NUL"),
    ({"queue": "q", "running": 1, "key": "ä" * 101}, "key", "202 bytes are more than 200"),
    ({"queue": "q", "running": 1, "key": 7}, "key", "7 is not text"),
])  # fmt: skip
def test_a_wrong_limit_is_refused_with_the_name_of_its_field(parts: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(InvalidLimit, match=message) as refused:
        Limit(**parts)
    assert refused.value.field == field


numbers = st.none() | st.integers(0, 2**70) | st.floats(0) | st.text(max_size=3) | st.binary(max_size=3)


@given(numbers, numbers, numbers)
@example(math.inf, math.inf, math.inf)
@example(1.5, 0.5, 1e-320)
def test_every_limit_written_by_sql_can_be_counted(running: Any, starts: Any, period: Any) -> None:
    limited, rate, seconds = parse_limit_columns(running, starts, period)
    for count in (limited, rate):
        assert count is None or 0 <= count <= MAX_COUNT
        assert type(count) in (int, type(None))
    assert (rate is None) == (seconds is None)
    assert seconds is None or 0 <= seconds <= SPAN_LIMIT


@rows("command", [
    StateArguments(), ReloadArguments(), ReloadArguments(("video", "größe"), config_only=True, wait=2.5),
    ScaleArguments("video", 0), StackArguments(2**62, 4711),
])  # fmt: skip
def test_a_command_is_read_as_it_was_written(command: NodeCommand) -> None:
    assert decode_command(encode_command(command)) == command


@rows("make, field", [
    (lambda: ReloadArguments(()), "kinds"), (lambda: ReloadArguments(("x",) * 101), "kinds"),
    (lambda: ReloadArguments(("",)), "kinds"), (lambda: ReloadArguments(("a\0b",)), "kinds"),
    (lambda: ReloadArguments(wait=0.0), "timeout"), (lambda: ReloadArguments(wait=MAX_WAIT + 1), "timeout"),
    (lambda: ReloadArguments(wait=float("nan")), "timeout"), (lambda: ScaleArguments("x" * 201, 1), "kind"),
    (lambda: ScaleArguments("video", -1), "count"), (lambda: ScaleArguments("video", True), "count"),
    (lambda: ScaleArguments("video", 1001), "count"),
])  # fmt: skip
def test_wrong_arguments_are_refused_with_the_name_of_the_field(make: object, field: str) -> None:
    assert callable(make)
    with pytest.raises(InvalidFilter) as error:
        make()
    assert error.value.field == field


@rows(
    "text",
    [
        "", "null", "[]", "{}", '{"type":"halt"}', '{"type":"state","more":1}', '{"type":"scale","kind":"video"}',
        '{"type":"scale","kind":"video","count":1.5}', '{"type":"stack","task_id":"1","pid":2}', "[" * 5_000,
    ],
)  # fmt: skip
def test_what_is_no_command_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no request that a node can carry out"):
        decode_command(text)
