"""Nodes and their processes; drain and forget them."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Self

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from peerd.store.nodes import Node
from peerd.store.processes import ProcessRecord, process_state
from peerd.web.dependencies import AioClientDependency
from peerd.web.fields import Name, RequestBody
from peerd.web.problems import documented

router = APIRouter(prefix="/nodes", tags=["nodes"])
ERRORS = documented(HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY)
FORGET_ERRORS = documented(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY)


class NodeView(BaseModel):
    """A node."""

    name: str = Field(examples=["video-1"])
    active: bool = Field(description="Its heartbeat is recent.")
    draining: bool = Field(description="It claims no tasks.")
    address: str | None
    zone: str | None
    version: str | None
    started_at: datetime | None
    checked_at: datetime | None = Field(description="Its latest heartbeat.")

    @classmethod
    def of(cls, node: Node) -> Self:
        """The view of a row."""
        return cls(**{field: getattr(node, field) for field in cls.model_fields})


class ProcessView(BaseModel):
    """A process of a node."""

    id: str
    node: str = Field(examples=["video-1"])
    kind: str = Field(examples=["video"])
    slot: str = Field(examples=["video-2"])
    role: str = Field(examples=["worker"])
    pid: int
    started_at: datetime
    checked_at: datetime = Field(description="Its latest heartbeat.")
    ended_at: datetime | None
    cause: str | None = Field(description="How it ended.")
    state: str = Field(description="alive, ended, or silent since its latest heartbeat.", examples=["alive"])

    @classmethod
    def of(cls, process: ProcessRecord, nodes: dict[int, Node]) -> Self:
        """The view of a row."""
        node = nodes.get(process.node_id)
        row: dict[str, Any] = {field: getattr(process, field, None) for field in cls.model_fields}
        name = f"node {process.node_id}" if node is None else node.name
        return cls(**row | {"id": str(process.id), "node": name, "state": process_state(process, node)})


class ProcessQuery(RequestBody):
    """Which processes are listed."""

    ended: bool = Field(False, description="Those that have ended, too.")


@router.get("", responses=ERRORS)
async def list_nodes(client: AioClientDependency) -> list[NodeView]:
    """All nodes that ever registered, and were not forgotten."""
    return [NodeView.of(node) for node in await client.nodes.list()]


@router.get("/processes", responses=ERRORS)
async def list_processes(client: AioClientDependency, wanted: Annotated[ProcessQuery, Query()]) -> list[ProcessView]:
    """The processes of all nodes."""
    nodes = {node.id: node for node in await client.nodes.list()}
    return [ProcessView.of(process, nodes) for process in await client.nodes.processes(ended=wanted.ended)]


@router.post("/{node}/drain", status_code=HTTPStatus.NO_CONTENT, responses=ERRORS, response_class=Response)
async def drain(node: Name, client: AioClientDependency) -> None:
    """Stop the claims of a node; its running tasks go on."""
    await client.nodes.drain(node)


@router.post("/{node}/resume", status_code=HTTPStatus.NO_CONTENT, responses=ERRORS, response_class=Response)
async def resume(node: Name, client: AioClientDependency) -> None:
    """Let a drained node claim tasks again."""
    await client.nodes.undrain(node)


@router.delete("/{node}", status_code=HTTPStatus.NO_CONTENT, responses=FORGET_ERRORS, response_class=Response)
async def forget(node: Name, client: AioClientDependency) -> None:
    """Delete the row of a node that will not come back."""
    await client.nodes.forget(node)
