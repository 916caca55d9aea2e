"""What routes receive: the client."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated, Final

from fastapi import Depends, Request

from peerd.operate.client import AioClient, Client

CLIENT_STATE: Final = "peerd_client"


async def client_of_request(request: Request) -> AioClient:
    """The client that the app was created with, or that of the web process which serves it.

    A stream of events calls it again while it lasts: what it raises then ends the stream.
    """
    client: Client | None = getattr(request.app.state, CLIENT_STATE)
    if client is None:
        process = getattr(request.state, "peerd", None)
        if process is None:
            raise RuntimeError("no web process of peerd serves this app: give create_app a client")
        client = process.client
    return client.aio


def scope_of(client: AioClient) -> Hashable:
    """What a client may see: where two scopes are equal, one reader of events serves both."""
    return client


AioClientDependency = Annotated[AioClient, Depends(client_of_request)]
