from __future__ import annotations

import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerd.runtime.messages.frames import MAX_BODY_BYTES, FrameDecoder, FrameError, encode, receive
from tests.support.rows import rows

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
MESSAGES = st.lists(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), JSON), max_size=5)


@given(MESSAGES, st.integers(1, 40))
def test_messages_are_decoded_as_encoded_for_any_split_of_the_stream(
    messages: list[dict[str, object]], size: int
) -> None:
    stream = b"".join(encode(message) for message in messages)
    decoder = FrameDecoder()
    found = [m for i in range(0, len(stream), size) for m in decoder.feed(stream[i : i + size])]
    assert found == messages


@rows("stream, why", [
    (b"GET / HTTP/1.1\r\n\r\n", "this is no frame"), (b"\x00\x00\x00\x02\xff\xfe", "a frame holds no JSON"),
    (b"\x00\x00\x00\x02[]", "a frame holds list instead of an object"),
    (b"\x00\x00\x00\x00", "a frame holds no JSON"),
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


def test_halves_of_surrogate_pairs_can_be_escaped_and_the_largest_frame_passes() -> None:
    message: dict[str, object] = {"\udcff": ["\ud800", "ä"]}
    frame = encode(message, escape_surrogates=True)
    assert FrameDecoder().feed(frame) == [message]
    assert frame[4:].isascii()
    message = {"b": "x" * (MAX_BODY_BYTES - len('{"b":""}'))}
    assert FrameDecoder().feed(encode(message)) == [message]


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
