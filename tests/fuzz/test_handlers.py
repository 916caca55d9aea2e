"""What reaches a handler, and what comes from it: bodies, results, frames of the link."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from peerd import Context, Queue, Status
from peerd.domain.errors import InvalidArguments
from peerd.domain.outcome import RESULT_LIMIT
from peerd.runtime.frames import MAX_BODY_BYTES, FrameDecoder, FrameError
from peerd.testing import run_inline
from peerd.work.arguments import HandlerArguments
from tests.fuzz import values
from tests.fuzz.conftest import searched


class Point(msgspec.Struct):
    x: float
    y: float = 0.0


def typed(
    ctx: Context,
    source: str,
    height: int = 720,
    ratio: float = 1.0,
    flag: bool = False,  # noqa: FBT001, FBT002 - as users write it
    when: datetime | None = None,
    key: UUID | None = None,
    path: Path = Path("a"),
    quality: Literal["low", "high"] = "low",
    points: list[Point] | None = None,
    more: dict[str, int] | None = None,
    free: Any = None,
) -> None: ...


ARGUMENTS = HandlerArguments(typed, "typed")
NAMES = ("source", "height", "ratio", "flag", "when", "key", "path", "quality", "points", "more", "free", "unknown")
BODIES = (
    st.dictionaries(st.sampled_from(NAMES), values.json).map(json.dumps)
    | st.fixed_dictionaries({"source": st.just("a")}, optional=dict.fromkeys(NAMES[1:], values.json)).map(json.dumps)
    | values.words
    | st.binary(max_size=40)
)


@searched(120)
@given(body=BODIES)
@example(body="[" * 100_000)
@example(body='{"source": "a", "free": ' + "[" * 100_000)
@example(body='{"source": "a", "free": ' + "[" * 100_000 + "]" * 100_000 + "}")
@example(body='{"source": "a", "height": ' + "9" * 5000 + "}")
@example(body='{"source": "a", "ratio": 1e999}')
@example(body='{"source": "\\ud800"}')
@example(body=b'{"source": "\xff"}')
@example(body='{"source": "a", "when": "9999-12-31T23:59:60+23:59"}')
@example(body='{"source": "a", "free": ' + "9" * 100_000 + "}")
@example(body='{"source": "' + "x" * 30_000_000 + '"}')
@example(body='{"' + "k" * 1_000_000 + '": 1}')
def test_a_body_fits_its_handler_or_is_refused_in_words(body: str | bytes) -> None:
    try:
        found = ARGUMENTS.decode(body)
    except InvalidArguments as error:
        assert len(str(error).encode()) < 10_000  # noqa: PT017 - what it says is the test
    else:
        assert set(found) == set(NAMES) - {"unknown"}
        assert (type(found["source"]), type(found["height"])) == (str, int)
        assert isinstance(found["path"], Path)


queue = Queue("q")
RETURNED: list[Any] = []


@queue.task
async def returns(ctx: Context) -> Any:
    return RETURNED[-1]


@searched(50)
@given(value=values.anything)
@example(value="x" * (RESULT_LIMIT + 1))
@example(value={"a": "\ud800"})
@example(value=10**4000)
@example(value={1: {2: {(3, 4): 5}}})
def test_whatever_a_handler_returns_is_a_result_or_a_failed_attempt(value: Any) -> None:
    RETURNED.append(value)
    ran = asyncio.run(run_inline(returns.with_args()))
    RETURNED.clear()
    assert ran.status in (Status.DONE, Status.FAILURE, Status.DEAD)
    assert len(json.dumps(ran.result)) <= 6 * RESULT_LIMIT  # whose letters are written out here
    assert ran.status is Status.DONE or 0 < len(ran.error or "") < 20_000


@searched(120)
@given(
    parts=st.lists(st.binary(max_size=30) | st.sampled_from([b"\x00\x00\x00\x02{}", b"\xff\xff\xff\xff", b"\x00" * 4]))
)
@example(parts=[b"\x00\x01\x00\x00", b"[" * 65536])
@example(parts=[b"\x00\x00\x13\x8a", b'{"":' + b"9" * 5001, b"}" * 5])
@example(parts=[b"\x00\x00\x00\x0e", b'{"a":"\\ud800"}'])
def test_a_stream_is_messages_or_no_stream_and_keeps_no_more_than_a_frame(parts: list[bytes]) -> None:
    decoder = FrameDecoder()
    try:
        for part in parts:
            for message in decoder.feed(part):
                assert isinstance(message, dict)
    except FrameError as error:
        assert str(error)  # noqa: PT017 - what it says is the test
    assert len(decoder._buffer) <= MAX_BODY_BYTES + 4 + max(map(len, parts), default=0)
