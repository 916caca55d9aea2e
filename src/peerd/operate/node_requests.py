"""Requests to nodes: insert a row, ring the node, and read the row until it is answered."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any, Final, TypeVar

import msgspec

from peerd.domain.access import Actor
from peerd.domain.errors import NodeRequestFailed, NodeRequestUnfinished, NodeUnreachable
from peerd.domain.node_request import MAX_WAIT, NodeCommand, NodeRequestStatus
from peerd.domain.outcome import truncate
from peerd.domain.ring import NodeRequested
from peerd.domain.task import NAME_LIMIT
from peerd.operate import validation
from peerd.operate.operations import Query, Steps
from peerd.store import node_requests
from peerd.store.node_requests import NodeRequest

T = TypeVar("T")

FIRST_PAUSE: Final = 0.02
MAX_PAUSE: Final = 0.5
"""Seconds between two reads of a request."""
TAKE_WITHIN: Final = 60.0
"""Seconds that a node has for taking a request, at the most; one without a ring finds it within ten seconds."""
ANSWER_MARGIN: Final = 5.0
"""Seconds for which the answer is waited for after the time in which the node does it."""


def wait_seconds(timeout: str | float) -> float:
    """The seconds of a time-out, at most a day; raises `InvalidTask`, or `InvalidFilter` for what is out of range."""
    return min(max(validation.seconds("timeout", timeout), 0.1), MAX_WAIT)


def requester_name(actor: Actor) -> str:
    """The name of an actor in the row of its request, and where it comes from."""
    return truncate(actor.name if actor.address is None else f"{actor.name} at {actor.address}", NAME_LIMIT)


def insert_query(node: str, command: NodeCommand, seconds: float, requester: str) -> Query[int]:
    """Request something of a node, ring it, and return the id of the request."""
    return Query(
        "run",
        node_requests.insert_request,
        validation.node(node),
        command,
        requested_by=requester,
        within=min(seconds, TAKE_WITHIN),
    ).then_ring(NodeRequested(node))


def request_and_wait(node: str, command: NodeCommand, seconds: float, answer: type[T], requester: str) -> Steps[T]:
    """Request something of a node and wait for the answer.

    Raises:
        NodeUnreachable: the node does not run, or has not taken the request; it will not be carried out.
        NodeRequestFailed: the node cannot carry it out.
        NodeRequestUnfinished: it has not ended in time, and goes on.
    """
    request_id: int = yield insert_query(node, command, seconds, requester)
    request = yield from _wait_for_end(request_id, seconds + ANSWER_MARGIN)
    return answer_of(request, node, answer)


def answer_of(request: NodeRequest, node: str, answer: type[T]) -> T:
    """The answer to a request that is not waited for any more; raises as `request_and_wait`."""
    match request.status:
        case NodeRequestStatus.DONE:
            return msgspec.json.decode(request.result or "null", type=answer)
        case NodeRequestStatus.FAILED:
            raise NodeRequestFailed(node, request.command, request.error or "it failed")
        case NodeRequestStatus.EXPIRED | NodeRequestStatus.WAITING:  # which its time makes the same
            raise NodeUnreachable(node, f"{_silence(request)}; look at it with peerd nodes list")
        case _ if not request.is_reachable:
            problem = "it ended, or was restarted, while it carried this out: look at its state before you repeat it"
            raise NodeRequestFailed(node, request.command, problem)
        case _:
            raise NodeRequestUnfinished(node, request.command, request.id)


def _wait_for_end(request_id: int, seconds: float) -> Generator[Query[Any] | float, Any, NodeRequest]:
    """Read a request until it has ended, its node is gone, or the time is over, in which case it is expired."""
    deadline = time.monotonic() + seconds
    pause = FIRST_PAUSE
    while True:
        request: NodeRequest = yield Query("read", node_requests.get_request, request_id)
        if not request.is_open:
            return request
        if not request.is_reachable or time.monotonic() >= deadline:
            final: NodeRequest = yield Query("run", node_requests.expire_request, request_id)
            return final
        yield min(pause, max(deadline - time.monotonic(), FIRST_PAUSE))
        pause = min(pause * 1.5, MAX_PAUSE)


def _silence(request: NodeRequest) -> str:
    if request.is_reachable:
        return "its agent has not answered in time: it is stopped, overloaded, or cannot reach the database"
    return "it was stopped or restarted, or its heartbeats have ended"
