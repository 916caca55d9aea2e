from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from peerd.runtime.messages.addressing import MAX_MESSAGE_BYTES
from peerd.runtime.process.urgent_requests import MAX_THREADS, UrgentHandler, UrgentRequests
from peerd.testing import eventually


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
    for number in range(MAX_THREADS + 1):
        urgent.receive(request(number))
    [refused] = replies(sent)
    assert (refused["id"], refused["error"]) == (MAX_THREADS, "8 such requests are being answered there")
    gate.set()
    eventually(lambda: len(replies(sent)) == MAX_THREADS + 1)
    urgent.receive(request(99))
    eventually(lambda: replies(sent)[-1].get("id") == 99)
    assert replies(sent)[-1]["data"] is True
