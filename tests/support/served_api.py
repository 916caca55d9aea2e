"""The REST API on a socket of this machine, served by a thread."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI


@contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """The URL of the app while it is served."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
    listening = socket.create_server(("127.0.0.1", 0))
    with socket.socket(fileno=listening.detach()) as known:  # asks for its protocol: asyncio then sends without delay
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([known])))
        thread.start()
        try:
            yield "http://127.0.0.1:{1}".format(*known.getsockname())
        finally:
            server.should_exit = True
            thread.join()
