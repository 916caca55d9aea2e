"""Requests to nodes: inserted by whoever wants something of a node, taken by its agent, once, and answered in the row.

A row is for one incarnation of a node. It is taken by a compare-and-set, so a request is carried out at most once: one
that an agent had taken when it ended is failed by the next agent of that incarnation (`fail_interrupted`), and what no
agent can take any more expires (`close_overdue`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.errors import NodeRequestNotFound, NodeUnreachable
from peerd.domain.node_request import NodeCommand, NodeRequestStatus, command_name, encode_command
from peerd.domain.outcome import truncate
from peerd.store.connection.mysql import wait_for_sync
from peerd.store.nodes import get_node
from peerd.store.records import columns_of, insert_row, read_all
from peerd.store.schema.tables import node_requests, nodes
from peerd.store.schema.types import now, seconds_from_now

MAX_OPEN: Final = 100
"""Requests to one node that wait or run."""
MAX_ERROR: Final = 8_192
"""Characters."""
KEEP: Final = 86_400.0
"""Seconds for which a request is kept."""
GONE_AFTER: Final = 30.0
"""Seconds without a heartbeat after which an inactive node is gone; a reload, which replaces its agent, is shorter."""
OVERDUE_AFTER: Final = 60.0
"""Seconds after its time, or after it was taken, when a request is closed that nothing else can close."""
REQUEST: Final = node_requests.c
INTERRUPTED: Final = (
    "the agent of the node ended while it carried this out, so whether it was done is not known: look at the node "
    "(peerd nodes show) before you request it again"
)


class NodeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table ``node_requests``, with the name of its node and whether its incarnation is still alive.

    Attributes:
        result: JSON text; of a running reload or scaling, what continues it after a replacement of the agent.
        is_reachable: whether the incarnation that it is for is the present one of the node, and is not gone.
    """

    id: int
    node_id: int
    node: str | None
    incarnation: str
    command: str
    arguments: str
    requested_by: str | None
    status: NodeRequestStatus
    result: str | None
    error: str | None
    created_at: datetime
    expires_at: datetime | None
    taken_at: datetime | None
    finished_at: datetime | None
    is_reachable: bool

    @property
    def is_open(self) -> bool:
        """Whether it may still be answered."""
        return self.status in OPEN


OPEN: Final = (NodeRequestStatus.WAITING, NodeRequestStatus.RUNNING)


def insert_request(
    connection: Connection, name: str, command: NodeCommand, *, requested_by: str | None, within: float
) -> int:
    """Request something of the present incarnation of a node, which must take it within so many seconds; its id.

    Raises:
        NodeNotFound: no node has ever registered under this name.
        NodeUnreachable: it does not run, or has too many open requests.
    """
    node = get_node(connection, name)
    if node.incarnation is None or not node.active:
        state = "it was stopped" if node.incarnation is None else "its heartbeats have ended"
        raise NodeUnreachable(name, f"{state}; start it (peerd up)")
    is_open = REQUEST.incarnation == node.incarnation, REQUEST.status.in_([str(status) for status in OPEN])
    first = sa.select(REQUEST.id).where(*is_open).limit(MAX_OPEN)
    if len(connection.execute(first).all()) >= MAX_OPEN:
        raise NodeUnreachable(name, f"{MAX_OPEN} requests to it are open; wait for their end")
    values = {
        "node_id": node.id,
        "incarnation": node.incarnation,
        "command": command_name(command),
        "arguments": encode_command(command),
        "requested_by": requested_by,
        "expires_at": seconds_from_now(within),
    }
    return insert_row(connection, node_requests, values)


def get_request(connection: Connection, request_id: int) -> NodeRequest:
    """A request.

    Raises:
        NodeRequestNotFound: it never existed, or was purged.
    """
    wait_for_sync(connection)
    [*found] = _read(connection, REQUEST.id == request_id)
    if not found:
        raise NodeRequestNotFound(request_id)
    return found[0]


def take_requests(connection: Connection, incarnation: str, limit: int) -> list[NodeRequest]:
    """Take so many waiting requests to an incarnation whose time is not over, the oldest first."""
    fresh = (REQUEST.status == str(NodeRequestStatus.WAITING), REQUEST.expires_at > now())
    taken = []
    for request in _read(connection, REQUEST.incarnation == incarnation, *fresh, limit=limit):
        own = sa.update(node_requests).where(REQUEST.id == request.id, *fresh)
        if connection.execute(own.values(status=str(NodeRequestStatus.RUNNING), taken_at=now())).rowcount:
            taken.append(request)
    return taken


def list_running_requests(connection: Connection, incarnation: str) -> list[NodeRequest]:
    """The requests to an incarnation that were taken and not ended."""
    return _read(
        connection, REQUEST.incarnation == incarnation, REQUEST.status == str(NodeRequestStatus.RUNNING), limit=MAX_OPEN
    )


def record_progress(connection: Connection, request_id: int, progress: str) -> None:
    """Write what a later agent needs in order to continue a running request."""
    _update(connection, request_id, (NodeRequestStatus.RUNNING,), result=progress)


def finish_request(connection: Connection, request_id: int, *, result: str | None, error: str | None) -> bool:
    """End a running request with its result or an error; whether it was running."""
    status = NodeRequestStatus.FAILED if error is not None else NodeRequestStatus.DONE
    values = {"status": str(status), "result": result, "error": None if error is None else truncate(error, MAX_ERROR)}
    return _update(connection, request_id, (NodeRequestStatus.RUNNING,), **values, finished_at=now())


def fail_interrupted(connection: Connection, request_ids: Collection[int]) -> None:
    """End running requests whose agent has ended."""
    for request_id in request_ids:
        finish_request(connection, request_id, result=None, error=INTERRUPTED)


def expire_request(connection: Connection, request_id: int) -> NodeRequest:
    """Expire a request, unless its agent has taken it; return it as it is then."""
    error = "its agent has not taken it in time"
    values = {"status": str(NodeRequestStatus.EXPIRED), "error": error, "finished_at": now()}
    _update(connection, request_id, (NodeRequestStatus.WAITING,), **values)
    return get_request(connection, request_id)


def close_overdue(connection: Connection, limit: int) -> int:
    """Close what nothing else can close: requests that were not taken in time, and those of ended incarnations."""
    over = sa.and_(
        REQUEST.status == str(NodeRequestStatus.WAITING), REQUEST.expires_at <= seconds_from_now(-OVERDUE_AFTER)
    )
    gone = sa.and_(
        REQUEST.status == str(NodeRequestStatus.RUNNING),
        REQUEST.taken_at <= seconds_from_now(-OVERDUE_AFTER),
        ~sa.exists().where(nodes.c.id == REQUEST.node_id, nodes.c.incarnation == REQUEST.incarnation),
    )
    found = sa.select(REQUEST.id, REQUEST.status).where(sa.or_(over, gone)).order_by(REQUEST.id).limit(limit)
    rows = connection.execute(found).all()
    for row in rows:
        if row.status == NodeRequestStatus.WAITING:
            expire_request(connection, row.id)
        else:
            finish_request(connection, row.id, result=None, error="the node ended while it carried this out")
    return len(rows)


def purge_requests(connection: Connection, limit: int) -> int:
    """Close overdue requests, and delete those that are older than a day."""
    close_overdue(connection, limit)
    old = REQUEST.created_at <= seconds_from_now(-KEEP)
    first = sa.select(REQUEST.id).where(old).order_by(REQUEST.created_at).limit(limit)
    ids = sorted(connection.execute(first.with_for_update(skip_locked=True)).scalars())
    return connection.execute(sa.delete(node_requests).where(REQUEST.id.in_(ids), old)).rowcount if ids else 0


def has_waiting_requests(incarnation: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
    """Whether a request waits for this incarnation; part of a statement that its agent sends anyway."""
    return sa.exists().where(REQUEST.incarnation == incarnation, REQUEST.status == str(NodeRequestStatus.WAITING))


def _read(connection: Connection, *conditions: sa.ColumnElement[bool], limit: int = 1) -> list[NodeRequest]:
    is_present = sa.or_(nodes.c.active, nodes.c.checked_at > seconds_from_now(-GONE_AFTER))
    reachable = sa.and_(nodes.c.incarnation == REQUEST.incarnation, is_present)
    of_node = {"node": nodes.c.name, "is_reachable": sa.case((reachable, 1), else_=0)}
    found = sa.select(*columns_of(NodeRequest, node_requests, **of_node)).outerjoin(
        nodes, nodes.c.id == REQUEST.node_id
    )
    return read_all(connection, NodeRequest, found.where(*conditions).order_by(REQUEST.id).limit(limit))


def _update(
    connection: Connection, request_id: int, statuses: Sequence[NodeRequestStatus], /, **values: object
) -> bool:
    own = REQUEST.id == request_id, REQUEST.status.in_([str(status) for status in statuses])
    return connection.execute(sa.update(node_requests).where(*own).values(**values)).rowcount == 1
