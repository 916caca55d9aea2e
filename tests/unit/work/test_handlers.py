from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerd import Call, Context, InvalidArguments, InvalidTask, Queue
from peerd.work.arguments import HandlerArguments, LimitKey
from tests.support.rows import rows

if TYPE_CHECKING:
    from decimal import Decimal as Unknowable


class Codec(Enum):
    H264 = "h264"


@dataclass
class Clip:
    path: Path
    seconds: float = 1.0


def rich(ctx: Context, clip: Clip, at: datetime, codec: Codec, to: Path = Path("/out"), tags: list[Path] = []) -> None:  # noqa: B006
    """A default that is shared in Python."""


def nothing(ctx: Context) -> None: ...
def starred(ctx: Context, *sources: str) -> None: ...
def keyworded(**options: str) -> None: ...
def positional(source: str, /) -> None: ...
def unknowable(ctx: Context, price: Unknowable) -> None: ...
def untyped(ctx, anything, other=3):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201
    return anything, other


def test_rich_values_survive_the_round_trip_and_a_default_that_is_mutable_is_not_shared_between_calls() -> None:
    arguments = HandlerArguments(rich, "rich")
    given_values = {"clip": Clip(Path("a.mp4")), "at": datetime(2026, 1, 2, tzinfo=UTC), "codec": Codec.H264}
    body = arguments.body(**given_values)
    for _ in range(2):
        decoded = arguments.decode(body)
        assert decoded == given_values | {"to": Path("/out"), "tags": []}
        decoded["tags"].append(Path("x"))
    assert HandlerArguments(untyped, "untyped").body("x") == '{"anything":"x"}'
    assert HandlerArguments(nothing, "nothing").decode(None) == {}, "a missing body means no arguments"


@rows("function, names", [
    (starred, "*sources"), (keyworded, "**options"), (positional, "source is positional only"),
    (unknowable, "Unknowable"),
])  # fmt: skip
def test_a_signature_that_no_json_object_fits_is_refused(function: Callable[..., None], names: str) -> None:
    with pytest.raises(InvalidArguments, match=f"^{function.__name__}: .*{names.replace('*', '[*]')}"):
        Queue("q").task(function)


@rows("body, problem", [
    ("[]", "Expected `object`"), ("{", "truncated"), ('{"anything": 1, "more": 2}', "more"), ("{}", "anything"),
    ("", "truncated"), (b"\xff", "invalid"), ('{"anything": ' + "[" * 100_000, "recursion"),
])  # fmt: skip
def test_a_body_that_does_not_fit_is_refused_with_a_message(body: str | bytes, problem: str) -> None:
    with pytest.raises(InvalidArguments, match=f"(?i)^untyped: .*{problem}"):
        HandlerArguments(untyped, "untyped").decode(body)


def test_arguments_are_checked_when_a_call_is_made() -> None:
    queue = Queue("q")

    @queue.task
    async def transcode(ctx: Context, source: str, height: int = 720) -> None: ...

    assert transcode.with_args("a.mp4", height=7) == Call("q", "transcode", '{"source":"a.mp4","height":7}')
    for arguments, options, problem in (
        (("a.mp4",), {"height": "tall"}, r"\$\.height"), ((), {}, "source"), (("a", 1, 2), {}, "too many"),
        (("a",), {"widht": 3}, "widht"), ((object(),), {}, "cannot be written as JSON"),
    ):  # fmt: skip
        with pytest.raises(InvalidArguments, match=f"^transcode: .*{problem}"):
            transcode.with_args(*arguments, **options)


NAMED = st.dictionaries(st.sampled_from(["a", "b", "c", "d", "self", "x"]), st.integers(0, 9), max_size=5)


@given(st.lists(st.integers(0, 9), max_size=5), NAMED)
def test_arguments_are_bound_as_in_python(positional: list[int], named: dict[str, int]) -> None:
    def declared(a: int, self: int, b: int = 1, *, c: int, d: int = 2) -> None: ...

    arguments = HandlerArguments(declared, "declared")
    try:
        bound = inspect.signature(declared).bind(*positional, **named).arguments
    except TypeError as error:
        with pytest.raises(InvalidArguments, match=f"^declared: {re.escape(str(error))}$"):
            arguments.body(*positional, **named)
    else:
        assert arguments.body(*positional, **named) == json.dumps(bound, separators=(",", ":"))


def test_a_handler_stays_a_function_and_in_a_process_it_is_at_the_top_of_a_module() -> None:
    queue = Queue("q")
    assert queue.task(untyped)(None, 1) == (1, 3)
    called: Any
    for called in (queue.handlers["untyped"], queue):
        with pytest.raises(AttributeError, match=r"no enqueue\(\).* client\.enqueue\("):
            called.enqueue("you")  # as other libraries do
    queue.task(nothing)
    with pytest.raises(InvalidArguments, match="has a handler of this name already"):
        queue.task(name="nothing")(untyped)
    for options in ({"timeout": 0}, {"max_attempts": 0}, {"name": "x" * 300}):
        with pytest.raises(InvalidTask):
            Queue("q").task(**options)(nothing)
    with pytest.raises(InvalidTask):
        Queue("no spaces")

    async def coroutine() -> None: ...

    def inner() -> None: ...

    class Holder:
        def method(self) -> None: ...

    assert Queue("q").task(process=True)(nothing).kind == "process"
    top = "top of a module"
    for wrong, problem in ((coroutine, "plain functions"), (inner, top), (Holder.method, top)):
        with pytest.raises(InvalidArguments, match=problem):
            Queue("q").task(process=True)(wrong)


def test_a_handler_has_its_own_back_off_and_its_own_exceptions_that_are_retried() -> None:
    queue = Queue("q")
    picky = queue.task(name="picky", retry_on=(OSError,), discard_on=(FileNotFoundError,))(nothing)
    open_minded = queue.task(name="open", discard_on=(ValueError,))(nothing)
    assert [picky.retries(error) for error in (TimeoutError(), FileNotFoundError(), KeyError())] == [True, False, False]
    assert [open_minded.retries(error) for error in (KeyError(), ValueError(), UnicodeError())] == [True, False, False]
    assert picky.retry_delay(2) is None
    assert queue.task(name="b", backoff=lambda attempts: attempts * 7)(nothing).retry_delay(2) == 14.0
    assert queue.task(name="c", backoff="exponential")(nothing).retry_delay(3) == pytest.approx(4.0, abs=0.8)


@rows("value", [float("nan"), [1.0, float("inf")], {"deep": (None, float("-inf"))}])
def test_a_number_outside_json_is_refused_and_not_written_as_null(value: object) -> None:
    handler = Queue("q").task(untyped)
    with pytest.raises(InvalidArguments, match="holds inf or nan"):
        handler.with_args(value)
    assert handler.with_args(None, other=[None]).body == '{"anything":null,"other":[null]}'


class Size(Enum):
    LARGE = "large"


def upload(ctx: Context, customer: str, path: Path = Path("/in/none"), number: int = 3) -> None: ...
def anything(value: Any = None) -> None: ...


def declared(limit_key: LimitKey, function: Any = upload) -> Any:
    return Queue("uploads").task(limit_key=limit_key)(function)


def test_the_key_is_an_argument_or_a_function_of_the_arguments() -> None:
    by_customer, by_number, by_path = declared("customer"), declared("number"), declared("path")
    assert by_customer.with_args("acme").limit_key == "acme"
    assert by_customer.with_args(path=Path("a"), customer="b").limit_key == "b"
    assert by_number.with_args("acme", number=7).limit_key == "7"
    assert by_path.with_args("acme", Path("/in/a.mp4")).limit_key == "/in/a.mp4"
    assert [one.with_args("acme").limit_key for one in (by_number, by_path)] == ["3", "/in/none"]
    assert Queue("uploads").task(upload).with_args("acme").limit_key is None, "without a declaration there is none"

    def whole(customer: str, path: Path, number: int) -> str:
        assert isinstance(path, Path)
        return f"{customer}/{path.parent}/{number}"

    assert declared(whole).with_args("acme", path=Path("/in/a")).limit_key == "acme//in/3"
    assert declared(lambda customer, **_: customer.lower()).with_args("ACME").limit_key == "acme"
    assert declared(lambda **given: len(given)).with_args("ACME").limit_key == "3"
    wrong: Any = [1]
    with pytest.raises(InvalidArguments, match="is a text or a number, and its function gives"):
        declared(lambda **_: wrong, anything).with_args()
    with pytest.raises(InvalidArguments, match="is a text or a number, and the argument value is"):
        declared("value", anything).with_args(True)


@rows("value, key", [
    ("a", "a"), (7, "7"), (1.5, "1.5"), (None, None), (Size.LARGE, "large"), (date(2026, 1, 2), "2026-01-02"),
])  # fmt: skip
def test_texts_numbers_and_what_json_encodes_as_such_are_keys_and_none_is_none(value: Any, key: str | None) -> None:
    assert declared("value", anything).with_args(value).limit_key == key
    assert declared(lambda **_: value, anything).with_args().limit_key == key


@rows("limit_key, function, problem", [
    ("client", upload, "upload: limit_key names no argument of it: 'client'; it has customer, path, number"),
    ("ctx", upload, "names no argument of it: 'ctx'"), ("", upload, "names no argument of it: ''"),
    ("customer", nothing, "it has none"),
    (lambda customer: customer, upload, r"by their names \(customer, path, number\)"),
    (lambda ctx, **_: ctx, upload, "missing a required argument: 'ctx'"),
    (lambda customer: customer, nothing, r"by their names \(none\)"),
])  # fmt: skip
def test_a_key_that_the_arguments_cannot_give_is_refused(limit_key: LimitKey, function: Any, problem: str) -> None:
    queue = Queue("uploads")
    with pytest.raises(InvalidArguments, match=problem):
        queue.task(limit_key=limit_key)(function)
    assert queue.handlers == {}
