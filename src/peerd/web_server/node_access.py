"""What an app in a web process must know of the node: [access], and where its sockets listen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from peerd.config.settings import AccessSettings, WebSettings
from peerd.domain.bind_address import is_local, parse_bind_address

NODE_ACCESS_STATE = "peerd_access"
"""The key of `scope["state"]` under which the app finds the `NodeAccess`."""


class NodeAccess(Struct, frozen=True):
    """[access], and the addresses of the process that other machines may reach."""

    settings: AccessSettings
    exposed: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: AccessSettings, web: WebSettings) -> NodeAccess:
        """Of a section [web.NAME]."""
        return cls(settings, exposed_addresses(web))


def exposed_addresses(web: WebSettings) -> tuple[str, ...]:
    """The addresses of a section that other machines may reach.

    >>> exposed_addresses(WebSettings(app="site:app", bind=("127.0.0.1:80", ":8080", "unix:/run/site.sock")))
    (':8080',)
    """
    return tuple(bind for bind in web.bind if not is_local(parse_bind_address(bind)))


def node_access(state: Mapping[str, Any]) -> NodeAccess | None:
    """What the web process has put into the state; None in another server."""
    found = state.get(NODE_ACCESS_STATE)
    return found if isinstance(found, NodeAccess) else None
