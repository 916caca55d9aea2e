"""The REST API on a socket of this machine, served by a thread."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import uvicorn
from fastapi import FastAPI, Request

from peerd import Actor, Client
from peerd.domain.access import ALL_RIGHTS
from peerd.web import create_app
from peerd.web.access.authentication import Authenticate
from peerd.web.dependencies import ACCESS_STATE
from peerd.web.metrics import SnapshotReader
from peerd.web.streams.hub import StreamHub

QUIET: Final[dict[str, Any]] = {"log_config": None, "access_log": False}
"""Options of uvicorn: it prints nothing, and leaves its loggers, which later tests of this process use, as they are."""


def everyone(_: Request) -> Actor:
    """The login of a site on which everyone may do everything."""
    return Actor(name="everyone", rights=ALL_RIGHTS)


class ShownApp:
    """An app that is served once, and shows the database of one client after another."""

    def __init__(self, app: FastAPI, address: str) -> None:
        self.app = app
        self.address = address

    @classmethod
    @contextmanager
    def served(cls, authenticate: Authenticate | None = None) -> Iterator[ShownApp]:
        app = create_app(authenticate=authenticate)
        with served(app) as address:
            yield cls(app, address)

    def show(self, client: Client) -> None:
        """Show the database of a client from now on, and nothing that was read from another one."""
        state = self.app.state
        getattr(state, ACCESS_STATE)._client = client
        state.peerd_metrics = SnapshotReader()
        state.peerd_log_streams, state.peerd_events = StreamHub(), StreamHub()


@contextmanager
def served(app: FastAPI, port: int = 0, **options: Any) -> Iterator[str]:
    """The URL of the app while it is served, at a free port or this one, with further options of uvicorn."""
    # A connection that idles is not closed: that may happen just when the client sends its next request.
    config = uvicorn.Config(app, **QUIET, lifespan="off", timeout_keep_alive=3600, **options)
    server = uvicorn.Server(config)
    listening = socket.create_server(("127.0.0.1", port))
    with socket.socket(fileno=listening.detach()) as known:  # asks for its protocol: asyncio then sends without delay
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([known])))
        thread.start()
        try:
            yield "{}://127.0.0.1:{}".format("https" if options else "http", known.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join()
