from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest

from peerd.domain.errors import InvalidTask
from peerd.domain.task import BODY_LIMIT, SPAN_LIMIT, NewTask, encode_arguments
from tests.support.rows import rows

AWARE = datetime(2030, 1, 1, tzinfo=UTC)


@rows("field, values", [
    ("queue", {"queue": ""}), ("queue", {"queue": "x" * 201}), ("queue", {"queue": "-begins-with-a-dash"}),
    ("queue", {"queue": "q\n"}), ("name", {"name": "ä" * 101}), ("name", {"name": "nul\x00"}),
    ("unique", {"unique_key": ""}), ("unique", {"unique_key": "half \ud800"}), ("limit_key", {"limit_key": ""}),
    ("limit_key", {"limit_key": "*"}), ("limit_key", {"limit_key": "a "}), ("limit_key", {"limit_key": "a\x00b"}),
    ("limit_key", {"limit_key": "ä" * 101}), ("body", {"body": "nul\x00"}), ("body", {"body": "x" * (BODY_LIMIT + 1)}),
    ("body_bytes", {"body_bytes": bytes(BODY_LIMIT + 1)}), ("priority", {"priority": 2**63}),
    ("priority", {"priority": -(2**63)}), ("max_attempts", {"max_attempts": 0}), ("timeout", {"timeout": 0.0}),
    ("timeout", {"timeout": float("nan")}), ("timeout", {"timeout": float("inf")}),
    ("start_at", {"start_at": datetime(2030, 1, 1)}),  # noqa: DTZ001 - a naive one is the point
    ("start_at", {"start_at": datetime(2039, 1, 1, tzinfo=UTC)}),
    ("start_at", {"start_at": datetime(1969, 1, 1, tzinfo=UTC)}), ("start_at", {"start_at": AWARE, "start_in": 1.0}),
    ("start_in", {"start_in": -1.0}), ("start_in", {"start_in": float("nan")}), ("finish_in", {"finish_in": 1e12}),
    ("finish_at", {"start_at": AWARE, "finish_at": AWARE}), ("finish_in", {"start_in": 60.0, "finish_in": 60.0}),
    ("unique_for", {"unique_key": "k", "unique_for": "sometimes"}),
    ("unique_for", {"unique_key": "k", "unique_for": 0.0}), ("ttr", {"ttr": 0}), ("ttr", {"ttr": 2**32}),
    ("delay", {"delay": -1}), ("delay", {"delay": 2**32}), ("delay", {"delay": 60, "start_in": 30.0}),
    ("delay", {"delay": 60, "start_at": AWARE}),
])  # fmt: skip
def test_a_task_that_no_database_can_store_is_refused_with_the_field(field: str, values: dict[str, Any]) -> None:
    with pytest.raises(InvalidTask) as caught:
        NewTask(**{"queue": "q", **values})
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field}: ")


def test_a_task_that_every_database_can_store_is_accepted() -> None:
    begin = datetime(2030, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    keys: dict[str, Any] = {"unique_key": "k" * 200, "unique_for": 0.001}
    NewTask(queue="a/b:c@d", name="ä" * 100, priority=-(2**63) + 1, start_at=begin, finish_in=0.0, **keys)
    with pytest.raises(InvalidTask, match="body: cannot be written as JSON"):
        encode_arguments({"source": object()})


def test_a_delay_sets_the_start_and_keeps_the_number_given() -> None:
    assert NewTask(queue="q", delay=0).start_in is None
    assert NewTask(queue="q", delay=60).start_in == 60.0
    longest = NewTask(queue="q", delay=2**32 - 1, ttr=2**32 - 1)
    assert longest.delay == 2**32 - 1
    assert longest.start_in is not None
    assert 0 < longest.start_in < SPAN_LIMIT
    assert msgspec.structs.replace(longest, priority=1).start_in == longest.start_in
