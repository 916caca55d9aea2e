"""Bulk actions: preview and begin them; list, show, pause, resume and cancel them."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Response

from peerd.web.dependencies import AioClientDependency
from peerd.web.fields import TaskId
from peerd.web.problems import documented
from peerd.web.routes.bulk_models import BulkBody, BulkPreviewView, BulkQuery, BulkView

router = APIRouter(prefix="/bulk", tags=["bulk actions"])
ERRORS = documented(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY)
BulkId = TaskId


@router.post(
    "",
    status_code=HTTPStatus.ACCEPTED,
    response_model=BulkView,
    responses=ERRORS | {200: {"model": BulkPreviewView, "description": "A dry run: how many tasks, and the first."}},
)
async def create(body: BulkBody, client: AioClientDependency) -> Response | BulkView:
    """Begin one action on all tasks of a filter, or with `dry_run` see which they are."""
    action, tasks = body.action.to_action(), body.filter.to_filter()
    if not body.dry_run:
        bulk = await client.bulk.create(action, tasks, digest=body.digest, most=body.limit, all_tasks=body.all)
        return BulkView.of(bulk)
    preview = await client.bulk.preview(action, tasks, all_tasks=body.all)
    names = {node.id: node.name for node in await client.nodes.list()}
    return Response(BulkPreviewView.of(preview, names).model_dump_json(), media_type="application/json")


@router.get("", responses=documented(HTTPStatus.UNPROCESSABLE_ENTITY))
async def list_bulk_actions(client: AioClientDependency, wanted: Annotated[BulkQuery, Query()]) -> list[BulkView]:
    """The newest bulk actions, newest first."""
    found = await client.bulk.list(states=wanted.state, limit=wanted.limit)
    return [BulkView.of(bulk) for bulk in found]


@router.get("/{bulk_id}", responses=documented(HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY))
async def show(bulk_id: BulkId, client: AioClientDependency) -> BulkView:
    """A bulk action, and how far it is."""
    return BulkView.of(await client.bulk.get(bulk_id))


@router.post("/{bulk_id}/pause", responses=ERRORS)
async def pause(bulk_id: BulkId, client: AioClientDependency) -> BulkView:
    """Stop it before its next chunk, until it is resumed."""
    return BulkView.of(await client.bulk.pause(bulk_id))


@router.post("/{bulk_id}/resume", responses=ERRORS)
async def resume(bulk_id: BulkId, client: AioClientDependency) -> BulkView:
    """Go on with one that is paused."""
    return BulkView.of(await client.bulk.resume(bulk_id))


@router.post("/{bulk_id}/cancel", responses=ERRORS)
async def cancel(bulk_id: BulkId, client: AioClientDependency) -> BulkView:
    """End it before its next chunk; what it has done stays done."""
    return BulkView.of(await client.bulk.cancel(bulk_id))
