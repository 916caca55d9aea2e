"""What routes receive: the client."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Depends, Request

from peerd.operate.client import AioClient, Client

CLIENT_STATE: Final = "peerd_client"


def _aio_client(request: Request) -> AioClient:
    """The client that the app was created with, or that of the web process which serves it."""
    client: Client | None = getattr(request.app.state, CLIENT_STATE)
    if client is None:
        process = getattr(request.state, "peerd", None)
        if process is None:
            raise RuntimeError("no web process of peerd serves this app: give create_app a client")
        client = process.client
    return client.aio


AioClientDependency = Annotated[AioClient, Depends(_aio_client)]
