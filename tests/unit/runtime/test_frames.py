from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerd.runtime.frames import MAX_BODY_BYTES, MAX_MESSAGE_BYTES, FrameDecoder, FrameError, encode, receive
from peerd.runtime.inbox import MAX_URGENT_REQUESTS, UrgentHandler, UrgentRequests
from peerd.testing import eventually
from tests.support.rows import rows

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
MESSAGES = st.lists(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), JSON), max_size=5)


@given(MESSAGES, st.integers(1, 40))
def test_messages_are_decoded_as_encoded_for_any_split(messages: list[dict[str, object]], size: int) -> None:
    stream = b"".join(encode(message) for message in messages)
    decoder = FrameDecoder()
    found = [m for i in range(0, len(stream), size) for m in decoder.feed(stream[i : i + size])]
    assert found == messages


@rows("stream, why", [
    (b"GET / HTTP/1.1\r\n\r\n", "this is no frame"), (b"\x00\x00\x00\x02\xff\xfe", "a frame holds no JSON"),
    (b"\x00\x00\x00\x02[]", "a frame holds list instead of an object"), (b"\x00\x00\x00\x00", "a frame holds no JSON"),
])  # fmt: skip
def test_an_invalid_frame_is_reported(stream: bytes, why: str) -> None:
    with pytest.raises(FrameError, match=why):
        FrameDecoder().feed(stream)


def test_a_message_that_cannot_be_encoded_is_refused() -> None:
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    for value in (float("nan"), object(), "\ud800", "x" * MAX_BODY_BYTES, nested):
        with pytest.raises(FrameError, match="cannot be written as JSON" if value is nested else None):
            encode({"value": value})
    escaped: dict[str, object] = {"\udcff": ["\ud800", "ä"]}
    frame = encode(escaped, escape_surrogates=True)
    assert (FrameDecoder().feed(frame), frame[4:].isascii()) == ([escaped], True)
    largest = {"b": "x" * (MAX_BODY_BYTES - len('{"b":""}'))}
    assert FrameDecoder().feed(encode(largest)) == [largest]


def test_receive_takes_one_frame_and_leaves_the_rest() -> None:
    mine, theirs = socket.socketpair()
    with mine, theirs:
        theirs.sendall(encode({"n": 1}) + encode({"n": 2})[:5])
        assert receive(mine) == {"n": 1}
        later = threading.Timer(0.05, lambda: theirs.sendall(encode({"n": 2})[5:]))
        later.start()
        assert receive(mine) == {"n": 2}
        later.join()
        theirs.sendall(b"\x00\x00")
        theirs.close()
        assert receive(mine) is None


def request(number: int, action: str = "stack", data: object = None, *, is_request: bool = True) -> dict[str, Any]:
    return {"type": "message", "action": action, "data": data, "id": number, "request": is_request, "from": {"pid": 7}}


def replies(sent: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [frame for frame in sent if frame["type"] == "reply"]


def test_a_registered_request_is_acknowledged_and_answered_in_a_thread_and_all_other_frames_are_not() -> None:
    sent: list[Mapping[str, Any]] = []
    urgent = UrgentRequests(sent.append)
    urgent.handlers["stack"] = lambda data: [data, threading.current_thread() is threading.main_thread()]
    assert urgent.receive(request(17, data="a"))
    eventually(lambda: len(sent) == 2)
    assert sent[0] == {"type": "taken", "count": 1}
    assert sent[1] == {"type": "reply", "to": {"pid": 7}, "id": 17, "data": ["a", False]}
    for frame in (request(1, "other"), request(1, is_request=False), {"type": "stop"}, {"type": "reply", "id": 1}):
        assert not urgent.receive(frame)


def test_errors_are_answered_too() -> None:
    sent: list[Mapping[str, Any]] = []
    urgent = UrgentRequests(sent.append)

    def refuse(data: object) -> object:
        raise LookupError("it does not run here")

    answers: dict[str, tuple[UrgentHandler, str]] = {
        "refuse": (refuse, "it does not run here"), "fail": (lambda data: 1 / 0, "ZeroDivisionError: division by zero"),
        "large": (lambda data: "x" * MAX_MESSAGE_BYTES, "and 262144 are allowed"),
        "odd": (set, "cannot be written as JSON"),
    }  # fmt: skip
    for number, (action, (answer, _)) in enumerate(answers.items()):
        urgent.handlers[action] = answer
        urgent.receive(request(number, action, data=[]))
    eventually(lambda: len(replies(sent)) == len(answers))
    for reply in replies(sent):
        assert list(answers.values())[reply["id"]][1] in reply["error"]


def test_more_than_so_many_at_once_are_refused_and_later_ones_answered() -> None:
    sent: list[Mapping[str, Any]] = []
    urgent = UrgentRequests(sent.append)
    gate = threading.Event()
    urgent.handlers["stack"] = lambda data: gate.wait(10)
    for number in range(MAX_URGENT_REQUESTS + 1):
        urgent.receive(request(number))
    [refused] = replies(sent)
    assert (refused["id"], refused["error"]) == (MAX_URGENT_REQUESTS, "8 such requests are being answered there")
    gate.set()
    eventually(lambda: len(replies(sent)) == MAX_URGENT_REQUESTS + 1)
    urgent.receive(request(99))
    eventually(lambda: replies(sent)[-1].get("id") == 99)
    assert replies(sent)[-1]["data"] is True
