"""Nodes and their processes; what their agents are requested to do."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec

from peerd.domain.access import Right
from peerd.domain.errors import InvalidFilter
from peerd.domain.node_request import MAX_WAIT, NodeCommand, ReloadArguments, ScaleArguments, StateArguments
from peerd.domain.quoting import quoted
from peerd.domain.ring import TasksAvailable
from peerd.operate import validation
from peerd.operate.node_requests import (
    ANSWER_MARGIN,
    insert_query,
    request_and_wait,
    requester_name,
    wait_seconds,
)
from peerd.operate.operations import Mode, OperationGroup, Query, QuerySequence, Steps, operation
from peerd.operate.rest import rest
from peerd.store import node_requests, nodes, processes
from peerd.store.audit import node_state
from peerd.store.node_requests import NodeRequest
from peerd.store.nodes import Node, NodeLoad, read_loads
from peerd.store.processes import ProcessRecord
from peerd.store.tasks.pages import tasks_lost_with_processes

T = TypeVar("T")
NodeList = list[Node]
ProcessList = list[ProcessRecord]
LostTasks = dict[int, list[int]]
LoadList = list[NodeLoad]


class LiveSlot(msgspec.Struct, frozen=True, kw_only=True):
    """A slot of a running node, and its process, as the master knows them.

    Attributes:
        name: such as ``video-1``.
        kind: the section of the configuration.
        role: ``worker``, ``web``, ``agent`` …
        state: ``STARTING``, ``RUNNING``, ``BACKOFF``, ``DRAINING``, ``EXITED`` or ``STOPPED``.
        pid: of its process, if there is one.
        generation: how many processes it has had, this one included.
        restarts: how many of them have followed a failure.
        started_at: of its process; ISO 8601.
        backoff_until: when the next one is started, after failures; ISO 8601.
        in_flight: tasks or requests that run in it.
        lag: seconds that its event loop was late.
        memory: bytes of its process and its descendants.
        cpu: processors that they use: 1.0 is one all the time.
        error: why it failed last.
        last_cause: how the process before it ended.
        replacing: by what it is being replaced.
        leaving: former processes that still finish their work.
    """

    name: str
    kind: str
    role: str
    state: str
    pid: int | None
    generation: int
    restarts: int
    started_at: str | None
    backoff_until: str | None
    in_flight: int | None
    lag: float | None
    memory: int | None
    cpu: float | None
    error: str | None
    last_cause: str | None
    replacing: str | None
    leaving: int


class LiveNode(msgspec.Struct, frozen=True, kw_only=True):
    """The live state of a node, from its master; ``state`` is ``starting``, ``running`` or ``stopping``."""

    node: str
    pid: int
    state: str
    started_at: str
    slots: list[LiveSlot]
    reloads: list[dict[str, Any]]


class ReloadResult(msgspec.Struct, frozen=True, kw_only=True):
    """A reload that has ended: what has become of each kind."""

    kinds: dict[str, str]


class ScaleResult(msgspec.Struct, frozen=True, kw_only=True):
    """A kind that was scaled: its number of processes before and now."""

    kind: str
    before: int
    processes: int


class NodeOperations(OperationGroup[Mode]):
    """``client.nodes``. What names a node raises `NodeNotFound` where no node has the name."""

    subject = "nodes"

    @operation(in_queues=True, rest=rest("GET /nodes", name="list_nodes"))
    def list(self) -> Query[NodeList]:
        """All nodes that ever registered, by name."""
        return Query("read", nodes.list_nodes)

    @operation(in_queues=True)
    def loads(self) -> Query[LoadList]:
        """How many tasks each node runs, of how many slots, by name; of the tasks that the actor may see."""
        return Query("read", read_loads, self._actor.queues)

    @operation(rest=rest("POST /nodes/{node}/drain", answer="nothing"))
    def drain(self, name: str) -> Query[None]:
        """Stop the claims of a node; its running tasks go on."""
        query = Query("run", nodes.set_draining, validation.text("node", name), draining=True)
        return query.acting_on("node", name, node_state, name)

    @operation(rest=rest("POST /nodes/{node}/resume", name="resume", answer="nothing"))
    def undrain(self, name: str) -> Query[None]:
        """Let a node claim tasks again."""
        query = Query("run", nodes.set_draining, validation.text("node", name), draining=False)
        return query.acting_on("node", name, node_state, name).then_ring(TasksAvailable())

    @operation(rest=rest("DELETE /nodes/{node}", answer="nothing"))
    def forget(self, name: str) -> Query[None]:
        """Delete the row of a node that will not come back; the managers do it after ``[manager] max_node_age``.

        Raises:
            NodeStillAlive: its heartbeat is recent.
            NodeHasPinnedTasks: unfinished tasks are pinned to it.
        """
        query = Query("run", nodes.delete_node, validation.text("node", name))
        return query.acting_on("node", name, node_state, name)

    @operation(in_queues=True)
    def get(self, name: str) -> Query[Node]:
        """The row of one node."""
        return Query("read", nodes.get_node, validation.text("node", name))

    @operation(needs=Right.VIEW)
    def state(self, name: str, *, timeout: str | float = 20.0) -> Query[LiveNode]:
        """The live state of a node's processes, from its master, wherever it runs.

        Args:
            name: the node's.
            timeout: seconds, or "1m". Where the doorbell does not work, a node answers within ten seconds.

        Raises:
            NodeUnreachable: it does not run, or does not answer in time.
            NodeRequestFailed: its master does not answer.
        """
        node, requester = validation.node(name), requester_name(self._actor)
        seconds = wait_seconds(timeout)
        return QuerySequence(_read_state(node, seconds, requester), waits=seconds + ANSWER_MARGIN)

    @operation
    def reload(
        self,
        name: str,
        kinds: Sequence[str] | None = None,
        *,
        config_only: bool = False,
        timeout: str | float = "15m",
    ) -> Query[ReloadResult]:
        """Replace processes of a node one by one, with new code and settings, as ``peerd reload`` does there.

        Args:
            name: the node's.
            kinds: only these, such as ``["video"]``; None: all.
            config_only: only those whose settings have changed.
            timeout: seconds that it may take, or "15m"; the reload goes on after them.

        Raises:
            NodeUnreachable: as `state`.
            NodeRequestFailed: there is no such kind, a new process did not boot, or it takes longer.
            NodeRequestUnfinished: it has not answered in time, and goes on.
        """
        seconds = wait_seconds(timeout)
        command = reload_command(kinds, config_only=config_only, seconds=seconds)
        return self._request_and_wait(name, command, seconds, ReloadResult)

    @operation
    def scale(self, name: str, kind: str, count: int, *, timeout: str | float = "5m") -> Query[ScaleResult]:
        """Change the number of processes of a kind, until the node's next start or reload.

        Args:
            name: the node's.
            kind: such as ``video``.
            count: processes.
            timeout: seconds until they run, or "5m".

        Raises:
            NodeUnreachable, NodeRequestFailed, NodeRequestUnfinished: as `reload`.
        """
        seconds = wait_seconds(timeout)
        command = ScaleArguments(kind, count, seconds)
        return self._request_and_wait(name, command, seconds, ScaleResult)

    @operation(rest=rest("POST /nodes/{node}/reload", name="reload", status=HTTPStatus.ACCEPTED))
    def request_reload(
        self,
        name: str,
        kinds: Sequence[str] | None = None,
        *,
        config_only: bool = False,
        timeout: str | float = MAX_WAIT,
    ) -> Query[NodeRequest]:
        """Request a `reload` without waiting for it; `get_request` reads what has become of it."""
        seconds = wait_seconds(timeout)
        return self._request_only(name, reload_command(kinds, config_only=config_only, seconds=seconds), seconds)

    @operation(rest=rest("POST /nodes/{node}/scale", name="scale", status=HTTPStatus.ACCEPTED))
    def request_scale(self, name: str, kind: str, count: int, *, timeout: str | float = MAX_WAIT) -> Query[NodeRequest]:
        """Request a `scale` without waiting for it; `get_request` reads what has become of it."""
        seconds = wait_seconds(timeout)
        return self._request_only(name, ScaleArguments(kind, count, seconds), seconds)

    @operation(rest=rest("GET /nodes/requests/{request_id}", name="show_request"))
    def get_request(self, request_id: int) -> Query[NodeRequest]:
        """A request to a node, which is kept for a day; raises `NodeRequestNotFound`."""
        return Query("read", node_requests.get_request, validation.number("request", request_id, 0))

    @operation(in_queues=True, rest=rest("GET /nodes/processes", name="list_processes"))
    def processes(self, *, ended: bool = False) -> Query[ProcessList]:
        """The processes of all nodes: the living ones, or all that are on record."""
        return Query("read", processes.list_processes, ended=ended)

    @operation(in_queues=True)
    def lost_tasks(self) -> Query[LostTasks]:
        """The ids of the tasks that processes ran when they died, by the ids of the processes, as far as it is known.

        It examines the newest 5,000 attempts that did not succeed.
        """
        return Query("read", tasks_lost_with_processes, self._actor.queues)

    def _request_and_wait(self, name: str, command: NodeCommand, seconds: float, answer: type[T]) -> QuerySequence[T]:
        node, requester = validation.node(name), requester_name(self._actor)
        steps = request_and_wait(node, command, seconds, answer, requester)
        return QuerySequence(steps, waits=seconds + ANSWER_MARGIN).acting_on("node", node)

    def _request_only(self, name: str, command: NodeCommand, seconds: float) -> QuerySequence[NodeRequest]:
        node, requester = validation.node(name), requester_name(self._actor)
        return QuerySequence(_request_only(node, command, seconds, requester)).acting_on("node", node)


def reload_command(kinds: Sequence[str] | None, *, config_only: bool, seconds: float = MAX_WAIT) -> ReloadArguments:
    """A reload of these kinds; raises `InvalidFilter`."""
    if kinds is not None and (isinstance(kinds, str) or not isinstance(kinds, Sequence)):
        raise InvalidFilter("kinds", f"{quoted(kinds)} is not a list of names")
    return ReloadArguments(None if kinds is None else tuple(kinds), bool(config_only), seconds)


def _request_only(name: str, command: NodeCommand, seconds: float, requester: str) -> Steps[NodeRequest]:
    request_id = yield insert_query(name, command, seconds, requester)
    request: NodeRequest = yield Query("read", node_requests.get_request, request_id)
    return request


def _read_state(name: str, seconds: float, requester: str) -> Steps[LiveNode]:
    state: dict[str, Any] = yield from request_and_wait(name, StateArguments(), seconds, dict[str, Any], requester)
    slots = [_live_slot(slot) for slot in state["slots"]]
    known = {field: state[field] for field in ("node", "pid", "state", "started_at", "reloads")}
    return LiveNode(**known, slots=slots)


def _live_slot(slot: dict[str, Any]) -> LiveSlot:
    vitals, sample, cause = slot["vitals"] or {}, slot["sample"] or {}, slot["last_cause"] or {}
    same = ("name", "kind", "role", "state", "pid", "generation", "restarts", "started_at", "backoff_until", "error")
    return LiveSlot(
        **{field: slot[field] for field in same},
        in_flight=vitals.get("in_flight"),
        lag=vitals.get("lag"),
        memory=sample.get("memory"),
        cpu=sample.get("cpu"),
        last_cause=cause.get("text"),
        replacing=slot["replacing"],
        leaving=len(slot["leaving"]),
    )
