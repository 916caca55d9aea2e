"""A server that is none, or is hostile, costs its client a clear error, and that of a good one is the database's."""

from __future__ import annotations

import inspect
import io
import itertools
import json
import time
from typing import Any

import pytest

from peerd import Client
from peerd.domain.errors import PeerdError, TaskNotFound
from peerd.domain.file_errors import UploadBroken
from peerd.domain.lifecycle import Status, TaskEvent
from peerd.operate.remote import files, http
from peerd.operate.remote.errors import ServerRefused, ServerUnreachable, TokenRefused, UnexpectedAnswer
from peerd.operate.wire import errors as wire_errors
from peerd.storage.upstream import MAX_JSON
from peerd.web.problems import STATUS_OF
from tests.support.hostile_server import answering

SECRET = "peerd_0123456789"


def answer(body: bytes, status: str = "200 OK", kind: str = "application/json", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-type: {kind}", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def problem(status: str, **fields: Any) -> bytes:
    return answer(json.dumps(fields).encode(), status, "application/problem+json")


def fail(*parts: bytes, call: str = "get", **server: Any) -> Exception:
    """The error of a call; it comes within the timeout, and without the token."""
    with answering(*parts, **server) as url, Client(url, token=SECRET, timeout=0.5) as client:
        began = time.monotonic()
        with pytest.raises(PeerdError) as caught:
            getattr(client.tasks, call)(7)
        assert time.monotonic() - began < 10
        assert SECRET not in repr(caught.value)
    return caught.value


UNEXPECTED: tuple[tuple[bytes, str], ...] = (
    (answer(b""), "cannot be read"),
    (answer(b"[" * 100_000), "cannot be read"),
    (answer(b"\xff\xfe"), "cannot be read"),
    (answer(b"{}"), "missing required field"),
    (answer(b"<html>", kind="text/html"), "'text/html', not JSON"),
    (answer(b"{}", kind=""), "not JSON"),
    (answer(b"{}", content_encoding="gzip"), "compressed"),
    (answer(b"", "302 Found", location="http://evil.example/"), "leads to 'http://evil.example/', which is not"),
    (answer(b"", "307 Temporary Redirect", location="/"), "not followed"),
    (answer(b"{}", "404 Not Found"), "no problem of the API"),
    (answer(b"[]", "500 Oops", "application/problem+json"), "cannot be read"),
    (answer(b"x" * 70_000, "500 Oops", "application/problem+json"), "more than 65536 bytes"),
)


def test_an_answer_that_is_none_of_the_api_is_told_from_it() -> None:
    errors = [(fail(given), text) for given, text in UNEXPECTED]
    assert [text for error, text in errors if not isinstance(error, UnexpectedAnswer) or text not in str(error)] == []


def test_what_speaks_no_http_or_breaks_off_is_unreachable() -> None:
    for given in (b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort"):
        assert isinstance(fail(given), ServerUnreachable), given


def test_an_answer_is_waited_for_as_long_as_the_client_says_also_if_it_trickles() -> None:
    assert "no answer within 0.5 s" in str(fail(b"", pause=20.0, call="cancel"))
    trickle = fail(b"HTTP/1.1 200 OK\r\ncontent-length: 9000\r\n\r\n", b"x", pause=0.05, endless=True, call="cancel")
    assert isinstance(trickle, ServerUnreachable)
    assert "no whole answer within 0.5 s" in str(trickle)


def test_an_endless_answer_is_left_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_ANSWER", 1_000_000)
    endless = fail(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n", b"x" * 65_536, endless=True)
    assert isinstance(endless, UnexpectedAnswer)
    assert "more than 1000000 bytes" in str(endless)


def test_an_answer_about_a_file_is_left_at_its_limit() -> None:
    """An answer of exactly the limit is decoded, and one that is a byte longer is not."""
    for more, text in ((0, "what it says of a file cannot be read"), (1, f"more than {MAX_JSON} bytes")):
        given = answer(b" " * (MAX_JSON + more), "201 Created")
        with answering(given) as url, Client(url) as client, pytest.raises(UnexpectedAnswer, match=text):
            client.files.put(io.BytesIO(b"x"), "b/k")
    head = b"HTTP/1.1 500 Oops\r\ncontent-type: application/problem+json\r\n\r\n"
    with (
        answering(head, b"x" * 65_536, endless=True) as url,
        Client(url) as client,
        pytest.raises(UnexpectedAnswer, match="its problem cannot be read"),
    ):
        client.files.put(io.BytesIO(b"x"), "b/k")


def test_a_put_whose_answer_is_broken_off_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer of success, and one of failure, each without its end: the connection is closed, or reset."""
    monkeypatch.setattr(files, "PAUSES", (0.0,))
    for status, is_reset in itertools.product(("201 Created", "500 Oops"), (False, True)):
        part = answer(b" " * 9, status)[:-8]
        with (
            answering(part, is_reset=is_reset) as url,
            Client(url) as client,
            pytest.raises(UploadBroken, match="sent 2 times"),
        ):
            client.files.put(io.BytesIO(b"x"), "b/k")


def test_a_refusal_says_what_the_server_says() -> None:
    error = fail(problem("401 Unauthorized", code="NoToken", detail="give a token"))
    assert isinstance(error, TokenRefused)
    assert (error.status, error.code, error.detail) == (401, "NoToken", "give a token")
    error = fail(problem("403 Forbidden", code="Forbidden", detail="not yours", data={"a": 1}))
    assert type(error) is ServerRefused
    assert "(403 Forbidden): not yours" in str(error)
    for code, data in (("TaskNotFound", {"task_id": "x"}), ("NewKindOfError", {})):  # of another version
        assert type(fail(problem("409 Conflict", code=code, detail="no", data=data))) is ServerRefused


def test_a_stream_that_is_none_is_told_from_one() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    for given, text in (
        (b"event: task\nid: a-1\ndata: garbage\n\n", "an event cannot be read"),
        (b"event: task\n\n", "an event cannot be read"),
        (b"event: \xff\n\n", "an event cannot be read"),
        (b"event: task\ndata: " + b"x" * 1_100_000, "more than 1048576 bytes"),
    ):
        with answering(head, given) as url, Client(url) as client, pytest.raises(UnexpectedAnswer, match=text):
            next(iter(client.events()))
    for given, kind in ((answer(b"{}"), UnexpectedAnswer), (problem("403 No", code="Forbidden"), ServerRefused)):
        with answering(given) as url, Client(url) as client, pytest.raises(kind):
            next(iter(client.events()))


SAMPLES: dict[str, Any] = {
    "str": "it's\n\x1b[31m ä", "int": 2**62, "float": 1.5, "list[str]": ["a", "b"], "Sequence[str]": ["a", "b"],
    "Sequence[int]": [1, 2], "str | None": None, "bool": True, "Status": Status.DONE, "TaskEvent": TaskEvent.CANCEL,
}  # fmt: skip
"""A value of each annotation of the arguments of an error."""


def kinds_of_api() -> list[type[PeerdError]]:
    known = wire_errors.known_errors()
    subclasses = {kind for root in STATUS_OF for kind in (root, *root.__subclasses__()) if kind.__name__ in known}
    return sorted(subclasses, key=lambda kind: kind.__name__)


def test_each_error_of_the_api_is_made_again_from_its_data() -> None:
    kinds = kinds_of_api()
    assert {kind for kind in STATUS_OF if kind.__module__.startswith("peerd.domain.")} <= set(kinds)
    for kind in kinds:
        _, *parameters = inspect.signature(kind.__init__).parameters.values()
        values = {one.name: SAMPLES[str(one.annotation)] for one in parameters}
        positional = [values.pop(one.name) for one in parameters if one.kind is not one.KEYWORD_ONLY]
        error = kind(*positional, **values)
        again = wire_errors.error_from_data(kind.__name__, wire_errors.error_data(error))
        assert type(again) is kind
        assert (str(again), vars(again)) == (str(error), vars(error)), "is each argument an attribute of its name?"


def test_what_is_no_error_of_the_domain_is_not_made() -> None:
    wrong: tuple[object, ...] = {}, {"task_id": "7"}, {"task_id": 7, "more": 1}, [7]
    for code, data in (*(("TaskNotFound", one) for one in wrong), ("SystemExit", {"code": 1}), ("PeerdError", {})):
        assert wire_errors.error_from_data(code, data) is None, (code, data)
    assert wire_errors.error_data(TaskNotFound(10**20_000)) is None, "an error of large values is sent without them"
