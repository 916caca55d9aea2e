from __future__ import annotations

from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from peerd import Context, InvalidArguments, Queue
from peerd.work.arguments import LimitKey
from tests.support.rows import rows


class Size(Enum):
    LARGE = "large"


def upload(ctx: Context, customer: str, path: Path = Path("/in/none"), number: int = 3) -> None: ...
def anything(value: Any = None) -> None: ...
def nothing() -> None: ...


def declared(limit_key: LimitKey, function: Any = upload) -> Any:
    return Queue("uploads").task(limit_key=limit_key)(function)


def test_the_key_is_the_value_of_an_argument_or_its_default() -> None:
    by_customer, by_number, by_path = declared("customer"), declared("number"), declared("path")
    assert by_customer.with_args("acme").limit_key == "acme"
    assert by_customer.with_args(path=Path("a"), customer="b").limit_key == "b"
    assert by_number.with_args("acme", number=7).limit_key == "7"
    assert by_path.with_args("acme", Path("/in/a.mp4")).limit_key == "/in/a.mp4"
    assert [one.with_args("acme").limit_key for one in (by_number, by_path)] == ["3", "/in/none"]
    assert Queue("uploads").task(upload).with_args("acme").limit_key is None, "without a declaration there is none"


def test_the_key_is_a_function_of_the_arguments_without_the_context() -> None:
    def whole(customer: str, path: Path, number: int) -> str:
        assert isinstance(path, Path)
        return f"{customer}/{path.parent}/{number}"

    assert declared(whole).with_args("acme", path=Path("/in/a")).limit_key == "acme//in/3"
    assert declared(lambda customer, **_: customer.lower()).with_args("ACME").limit_key == "acme"
    assert declared(lambda **given: len(given)).with_args("ACME").limit_key == "3"


@rows("value, key", [
    ("a", "a"), (7, "7"), (1.5, "1.5"), (None, None), (Size.LARGE, "large"), (date(2026, 1, 2), "2026-01-02"),
])  # fmt: skip
def test_texts_numbers_and_what_json_encodes_as_such_are_keys_and_none_is_none(value: Any, key: str | None) -> None:
    assert declared("value", anything).with_args(value).limit_key == key
    assert declared(lambda **_: value, anything).with_args().limit_key == key


@rows("value", [True, [1], {"a": 1}])
def test_other_values_are_refused_as_keys(value: Any) -> None:
    with pytest.raises(InvalidArguments, match="is a text or a number, and the argument value is"):
        declared("value", anything).with_args(value)
    with pytest.raises(InvalidArguments, match="is a text or a number, and its function gives"):
        declared(lambda **_: value, anything).with_args()


@rows("limit_key, function, problem", [
    ("client", upload, "upload: limit_key names no argument of it: 'client'; it has customer, path, number"),
    ("ctx", upload, "names no argument of it: 'ctx'"), ("", upload, "names no argument of it: ''"),
    ("customer", nothing, "it has none"),
    (lambda customer: customer, upload, r"by their names \(customer, path, number\)"),
    (lambda ctx, **_: ctx, upload, "missing a required argument: 'ctx'"),
    (lambda customer: customer, nothing, r"by their names \(none\)"),
])  # fmt: skip
def test_a_key_that_the_arguments_cannot_give_is_refused_at_its_declaration(
    limit_key: LimitKey, function: Any, problem: str
) -> None:
    queue = Queue("uploads")
    with pytest.raises(InvalidArguments, match=problem):
        queue.task(limit_key=limit_key)(function)
    assert queue.handlers == {}
