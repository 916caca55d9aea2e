"""How the bell of a node is: whether it is known to work, and why not."""

from __future__ import annotations

from typing import Any

import msgspec


class DoorbellStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the bell.

    ``way`` is "datagrams" or "notify"; ``reason`` why it is not known to work, None when it is; ``address`` where the
    node hears datagrams; ``heard`` how many rings have come; ``refused`` how many datagrams were refused, by reason;
    ``last_refused`` the reason and the sender of the latest one.
    """

    way: str
    reason: str | None
    address: str | None = None
    heard: int = 0
    refused: dict[str, int] = msgspec.field(default_factory=dict)
    last_refused: str | None = None

    @property
    def works(self) -> bool:
        """Whether polls may be rare."""
        return self.reason is None

    def to_json(self) -> dict[str, Any]:
        """As the command line shows it."""
        return {"works": self.works, **msgspec.to_builtins(self)}
