"""What an app in a web process must know of the node: [access]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from peerd.config.settings import AccessSettings

NODE_ACCESS_STATE = "peerd_access"
"""The key of `scope["state"]` under which the app finds the `NodeAccess`."""


class NodeAccess(Struct, frozen=True):
    """[access]."""

    settings: AccessSettings


def node_access(state: Mapping[str, Any]) -> NodeAccess | None:
    """What the web process has put into the state; None in another server."""
    found = state.get(NODE_ACCESS_STATE)
    return found if isinstance(found, NodeAccess) else None
