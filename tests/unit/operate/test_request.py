from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from peerd.domain.call import Call
from peerd.domain.errors import InvalidTask
from peerd.operate.request import new_task

CALL = Call("video", "transcode", '{"source":"a.mp4"}')


def test_a_body_is_written_as_json_a_text_stays_and_bytes_are_binary() -> None:
    assert new_task("legacy", body="a").body == '"a"'
    assert new_task("legacy", text="a").body == "a"
    binary = new_task("legacy", bytes=b"\xff\x00")
    assert (binary.body, binary.body_bytes) == (None, b"\xff\x00")


def test_an_option_that_is_none_counts_as_not_given() -> None:
    options: dict[str, Any] = dict.fromkeys(("priority", "start_at", "node", "unique", "unique_for", "timeout", "body"))
    assert new_task("legacy", **options) == new_task("legacy")


def test_durations_are_accepted_as_text_with_units() -> None:
    task = new_task("legacy", start_in="10m", finish_in="20m", timeout="2h", unique="a", unique_for="1d")
    assert (task.start_in, task.finish_in, task.timeout, task.unique_for) == (600.0, 1200.0, 7200.0, 86400.0)


WRONG: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({"body": object()}, "body", "JSON"), ({"body": float("nan")}, "body", "holds inf or nan"),
    ({"body": 1, "text": "1"}, "text", "not both"), ({"bytes": "text"}, "bytes", "not bytes"),
    ({"text": b"bytes"}, "text", "not text"), ({"priority": "high"}, "priority", "whole number"),
    ({"priority": True}, "priority", "whole number"), ({"max_attempts": 0}, "max_attempts", "from 1"),
    ({"start_in": "soon"}, "start_in", "not a duration"), ({"start_at": "tomorrow"}, "start_at", "start_in"),
    ({"start_at": datetime(2026, 1, 1)}, "start_at", "time zone"),  # noqa: DTZ001 - the naive one is the point
    ({"start_at": datetime(2026, 1, 1, tzinfo=UTC), "start_in": 1}, "start_at", "not both"),
    ({"unique_for": "1h"}, "unique_for", "unique"), ({"text": "a\x00b"}, "body", "NUL"),
    ({"unique": "a", "unique_for": "a while"}, "unique_for", "not a duration"), ({"node": 7}, "node", "not text"),
)  # fmt: skip


def test_a_wrong_option_is_refused_with_its_name() -> None:
    for options, field, words in WRONG:
        with pytest.raises(InvalidTask, match=words) as refused:
            new_task("legacy", **options)
        assert refused.value.field == field, options
    for option in ("name", "body", "text", "bytes"):
        options = {option: b"x" if option == "bytes" else "x"}
        with pytest.raises(InvalidTask, match="brings its own"):
            new_task(CALL, **options)


def test_what_is_no_option_or_neither_a_call_nor_a_name_is_named() -> None:
    options: dict[str, Any] = {"prio": 3}
    with pytest.raises(TypeError, match="'prio'"):
        new_task("legacy", **options)
    handler: Any = print
    with pytest.raises(TypeError, match="with_args"):
        new_task(handler)
