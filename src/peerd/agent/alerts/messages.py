"""The alerts among the messages of the master."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from peerd.domain.alert import Alert


def alert_of(message: Mapping[str, Any], node: str) -> Alert | None:
    """The alert of a message of type `alert`; None for other messages.

    >>> alert = alert_of({"type": "alert", "alert": "hung", "text": "video-1 hangs", "slot": "video-1"}, "one")
    >>> alert.node, alert.slot, alert_of({"type": "ready"}, "one")
    ('one', 'video-1', None)
    """
    if message.get("type") != "alert":
        return None
    return Alert(
        alert=str(message.get("alert")),
        text=str(message.get("text")),
        node=node,
        at=datetime.now(UTC),
        slot=message.get("slot"),
        pid=message.get("pid"),
        data=dict(message.get("data") or {}),
    )
