"""Whether other machines would reach an API that has no users."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peerd.operate.operations import Query
from peerd.store.access.users import has_access_rows
from peerd.web_server.node_access import node_access

REMEDY = 'add a user (peerd users add NAME --role admin), or bind it to this machine, "127.0.0.1:8080"'


async def find_exposure(state: Mapping[str, Any]) -> str | None:
    """Why the app must not start in this process; None if it may."""
    node, process = node_access(state), state.get("peerd")
    if node is None or not node.exposed or process is None or node.settings.proxy_user_header is not None:
        return None
    if await process.client.aio.mode.execute(Query("read", has_access_rows)):
        return None
    return f"other machines reach {', '.join(node.exposed)}, and the API has no users: {REMEDY}"
