"""A new bulk action."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy.engine import Connection

from peerd.domain.bulk import BulkAction, BulkMove, BulkState, TaskAction, check_status
from peerd.store.bulk.rows import get_bulk, insert_bulk
from peerd.store.bulk.selection import PreviewDigest, preview_bulk
from peerd.store.nodes.nodes import get_node_id
from peerd.store.outcomes.recording import database_now
from peerd.store.tasks.filters import resolve_filter

SHORT_PREVIEW: Final = 0.2
"""Seconds: on SQLite all other writers wait meanwhile. The managers count on."""


def create_bulk(
    connection: Connection,
    action: TaskAction,
    fields: Mapping[str, Any],
    *,
    digest: str | None = None,
    most: int | None = None,
    created_by: str | None = None,
) -> BulkAction:
    """Write a bulk action; the managers carry it out.

    Args:
        connection: in a transaction.
        action: what is done to each task.
        fields: the fields of the filter.
        digest: of a preview, whose tasks it acts on; without it, on those that meet the filter now.
        most: tasks that it acts on at the most.
        created_by: the name of a user.

    Raises:
        InvalidFilter: a field has a wrong value, or the digest is of another preview.
        NodeNotFound: no node has the name of the filter, or of the action.
        IllegalTransition: no task of the filter's status allows the action.
    """
    check_status(action, resolve_filter(connection, **fields).status)
    if isinstance(action, BulkMove) and action.node is not None:
        get_node_id(connection, action.node)
    found = preview_bulk(connection, action, fields, within=SHORT_PREVIEW).digest if digest is None else digest
    previewed = PreviewDigest.decode(found, action, fields, database_now(connection))
    matched, at_least = previewed.matched, previewed.at_least
    if most is not None and matched >= most:
        matched, at_least = most, False
    bulk_id = insert_bulk(
        connection,
        action,
        fields,
        highest_id=previewed.highest_id,
        as_of=previewed.as_of,
        most=most,
        state=str(BulkState.COUNTING if at_least else BulkState.RUNNING),
        matched=matched,
        at_least=at_least,
        created_by=created_by,
    )
    return get_bulk(connection, bulk_id)
