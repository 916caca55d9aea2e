"""Reload and scaling by a client of a server, which waits for the node's answer itself.

The web process that carries a request may be the one that the reload replaces, and it ends when its grace is over,
perhaps before the reload. So the request to the node is made by one short request to the server, and its answer is
read by others, from the process that serves them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from peerd.domain.errors import DatabaseUnavailable, NodeRequestUnfinished
from peerd.operate import node_requests
from peerd.operate.node_requests import FIRST_PAUSE, MAX_PAUSE, answer_of
from peerd.operate.nodes import NodeOperations, ReloadResult, ScaleResult
from peerd.operate.operations import Operation
from peerd.store.node_requests import NodeRequest

AWAY_WITHIN: Final = 30.0
"""Seconds for which the server may be away while the answer is waited for, as when its node restarts."""


class WaitedOperation(NamedTuple):
    """The parts of an operation that waits for a node: the operation that does not wait, and the type of the answer."""

    request: Any
    """An `Operation`, whose type would make it a method of this one."""
    answer: type[Any]


WAITED: Final[Mapping[Operation[..., Any], WaitedOperation]] = {
    NodeOperations.reload: WaitedOperation(NodeOperations.request_reload, ReloadResult),
    NodeOperations.scale: WaitedOperation(NodeOperations.request_scale, ScaleResult),
}


def wait_for_answer(
    request: NodeRequest, node: str, answer: type[Any], seconds: float, read: Callable[[int], NodeRequest]
) -> Any:
    """Read a request until it has ended, its node is gone, or the time is over; its answer.

    Raises:
        NodeUnreachable, NodeRequestFailed: as the operation.
        NodeRequestUnfinished: it has not ended in time, or the server is away for longer than `AWAY_WITHIN`.
    """
    deadline = time.monotonic() + seconds + node_requests.ANSWER_MARGIN
    pause, answered_at = FIRST_PAUSE, time.monotonic()
    while request.is_open and request.is_reachable and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(pause * 1.5, MAX_PAUSE)
        try:
            request, answered_at = read(request.id), time.monotonic()
        except DatabaseUnavailable as error:
            if time.monotonic() > answered_at + AWAY_WITHIN:
                raise NodeRequestUnfinished(node, request.command, request.id) from error
    return answer_of(request, node, answer)
