"""What is requested of nodes: their live state, a reload, scaling, the stack of a running task."""

from __future__ import annotations

import json
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Self

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field

from peerd.domain.errors import NodeRequestFailed, NodeRequestUnfinished, NodeUnreachable
from peerd.domain.node_request import MAX_KINDS, MAX_PROCESSES_OF_KIND, NodeRequestStatus
from peerd.domain.task import NAME_LIMIT
from peerd.domain.task_stack import TaskStack
from peerd.operate.client import AioClient
from peerd.operate.nodes import LiveNode, LiveSlot
from peerd.store.node_requests import NodeRequest
from peerd.web.dependencies import AioClientDependency
from peerd.web.fields import MAX_ID, WHOLE, Name, RequestBody, TaskId
from peerd.web.problems import documented
from peerd.web.routes.nodes import NodeView

router = APIRouter()
SHOW_ERRORS = documented(HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY)
REQUEST_ERRORS = documented(HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.GATEWAY_TIMEOUT)
STACK_ERRORS = documented(
    HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.GATEWAY_TIMEOUT
)
STATE_TIMEOUT = 12.0
"""Seconds: without the doorbell a node looks for requests every ten."""
OF_ALL_QUEUES = "the live state is about all queues, and this actor is restricted to some"
STACK_TIMEOUT = 20.0
"""Seconds: the same, and what the process takes."""

Kind = Annotated[str, Field(min_length=1, max_length=NAME_LIMIT, pattern="^[^\x00]+$", examples=["video"])]
RequestId = Annotated[int, Path(ge=0, le=MAX_ID, examples=[17])]


class SlotView(BaseModel):
    """A slot of a running node, and its process."""

    name: str = Field(examples=["video-1"])
    kind: str = Field(examples=["video"])
    role: str = Field(examples=["worker"])
    state: str = Field(description="`STARTING`, `RUNNING`, `BACKOFF`, `DRAINING`, `EXITED` or `STOPPED`.")
    pid: int | None
    generation: int = Field(description="Processes that the slot has had.")
    restarts: int
    started_at: datetime | None
    backoff_until: datetime | None = Field(description="When the next process is started, after failures.")
    in_flight: int | None = Field(description="Tasks or requests that run in it.")
    lag: float | None = Field(description="Seconds that its event loop was late.")
    memory: int | None = Field(description="Bytes, with its descendants.")
    cpu: float | None = Field(description="Processors that they use.")
    error: str | None
    last_cause: str | None = Field(description="How the process before it ended.")
    replacing: str | None
    leaving: int = Field(description="Former processes that still finish their work.")

    @classmethod
    def of(cls, slot: LiveSlot) -> Self:
        """The view of a slot."""
        return cls(**{field: getattr(slot, field) for field in cls.model_fields})


class LiveNodeView(BaseModel):
    """The live state of a node, from its master."""

    pid: int
    state: str = Field(description="`starting`, `running` or `stopping`.")
    started_at: datetime
    slots: list[SlotView]

    @classmethod
    def of(cls, live: LiveNode) -> Self:
        """The view of a state."""
        slots = [SlotView.of(slot) for slot in live.slots]
        return cls(pid=live.pid, state=live.state, started_at=datetime.fromisoformat(live.started_at), slots=slots)


class NodeDetail(NodeView):
    """A node, with its live state."""

    live: LiveNodeView | None = Field(description="Null where the node does not answer, or the actor may not see it.")
    problem: str | None = Field(description="Why it is null.")


class Reload(RequestBody):
    """Which processes are replaced."""

    kinds: list[Kind] | None = Field(None, min_length=1, max_length=MAX_KINDS, description="Null: all.")
    config_only: bool = Field(False, description="Only kinds whose settings have changed.")


class Scale(RequestBody):
    """The new number of processes of a kind."""

    kind: Kind
    count: Annotated[int, Field(strict=True, ge=0, le=MAX_PROCESSES_OF_KIND), WHOLE]


class NodeRequestView(BaseModel):
    """A request to a node."""

    id: str
    node: str | None
    command: str = Field(examples=["reload"])
    arguments: dict[str, Any]
    requested_by: str | None
    status: NodeRequestStatus
    result: dict[str, Any] | None = Field(description="Of one that is done.")
    error: str | None
    created_at: datetime
    taken_at: datetime | None
    finished_at: datetime | None

    @classmethod
    def of(cls, request: NodeRequest) -> Self:
        """The view of a row."""
        is_done = request.status is NodeRequestStatus.DONE
        row: dict[str, Any] = {field: getattr(request, field) for field in cls.model_fields}
        row |= {"id": str(request.id), "arguments": _object(request.arguments) or {}}
        return cls(**row | {"result": _object(request.result) if is_done else None})


class FrameView(BaseModel):
    """Where the code of a call is."""

    file: str
    line: int
    function: str
    source: str


class CallView(BaseModel):
    """The frames of a thread or an asyncio task, outermost first."""

    name: str = Field(examples=["coroutine"])
    frames: list[FrameView]


class ProcessUsageView(BaseModel):
    """What a process uses."""

    pid: int
    cpu: float = Field(description="Processors: 1.0 is one all the time.")
    memory: int = Field(description="Bytes (RSS).")
    threads: int


class StackView(BaseModel):
    """The stack of a running task; without the values of variables."""

    task_id: str
    node: str
    slot: str
    since: datetime | None
    calls: list[CallView]
    is_cut: bool = Field(description="Frames are left out.")
    process: ProcessUsageView | None

    @classmethod
    def of(cls, stack: TaskStack) -> Self:
        """The view of a stack."""
        calls = [
            CallView(
                name=call.name,
                frames=[
                    FrameView(file=one.file, line=one.line, function=one.function, source=one.source)
                    for one in call.frames
                ],
            )
            for call in stack.calls
        ]
        used = stack.process
        usage = None
        if used is not None:
            usage = ProcessUsageView(pid=used.pid, cpu=used.cpu, memory=used.memory, threads=used.threads)
        return cls(
            task_id=str(stack.task_id),
            node=stack.node,
            slot=stack.slot,
            since=stack.since,
            calls=calls,
            is_cut=stack.is_cut,
            process=usage,
        )


@router.get("/nodes/requests/{request_id}", tags=["nodes"], responses=SHOW_ERRORS)
async def show_request(request_id: RequestId, client: AioClientDependency) -> NodeRequestView:
    """A request to a node; it is kept for a day."""
    return NodeRequestView.of(await client.nodes.get_request(request_id))


@router.get("/nodes/{node}", tags=["nodes"], responses=SHOW_ERRORS)
async def show_node(node: Name, client: AioClientDependency) -> NodeDetail:
    """A node with the live state of its processes, for which its master is asked; not for an actor of some queues."""
    row = await client.nodes.get(node)
    live, problem = (None, OF_ALL_QUEUES) if client.actor.queues is not None else await _ask(client, node)
    return NodeDetail(**NodeView.of(row).model_dump(), live=live, problem=problem)


async def _ask(client: AioClient, node: str) -> tuple[LiveNodeView | None, str | None]:
    """The live state of a node, or why it is not known."""
    try:
        return LiveNodeView.of(await client.nodes.state(node, timeout=STATE_TIMEOUT)), None
    except (NodeUnreachable, NodeRequestFailed, NodeRequestUnfinished) as error:
        return None, str(error)


@router.post("/nodes/{node}/reload", tags=["nodes"], status_code=HTTPStatus.ACCEPTED, responses=REQUEST_ERRORS)
async def reload(node: Name, client: AioClientDependency, body: Reload | None = None) -> NodeRequestView:
    """Replace processes of a node one by one, with new code and settings; the request shows what becomes of it."""
    wanted = body or Reload()
    return NodeRequestView.of(await client.nodes.request_reload(node, wanted.kinds, config_only=wanted.config_only))


@router.post("/nodes/{node}/scale", tags=["nodes"], status_code=HTTPStatus.ACCEPTED, responses=REQUEST_ERRORS)
async def scale(node: Name, body: Scale, client: AioClientDependency) -> NodeRequestView:
    """Change the number of processes of a kind; the request shows what becomes of it."""
    return NodeRequestView.of(await client.nodes.request_scale(node, body.kind, body.count))


@router.get("/tasks/{task_id}/stack", tags=["tasks"], responses=STACK_ERRORS)
async def show_stack(task_id: TaskId, client: AioClientDependency) -> StackView:
    """Where the code of a running task is now, read from its process, and what that uses."""
    return StackView.of(await client.tasks.stack(task_id, timeout=STACK_TIMEOUT))


def _object(text: str | None) -> dict[str, Any] | None:
    """A JSON object of the table, which any program may have written."""
    try:
        found = json.loads(text or "null")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
