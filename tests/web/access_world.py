"""The API on peerd's own server, as a node serves it, with users and tokens of every kind."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import httpx

from peerd import Client
from peerd.config.settings import AccessSettings, WebSettings
from peerd.domain.errors import RequestFailed
from peerd.runtime.observability.events import EventBus
from peerd.web import create_app
from peerd.web_server.node_access import NODE_ACCESS_STATE, NodeAccess
from peerd.web_server.server import WebServer

PASSWORD = "correct horse battery"
HOST = "jobs.example.com"
API = "/api/v1"
BROWSERS: list[httpx.Client] = []


def serve_app(app: Any, settings: WebSettings, state: dict[str, Any], events: EventBus) -> Iterator[str]:
    """Serve an app on peerd's own web server in a thread; the address."""
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    ready = threading.Event()

    async def serve(listening: socket.socket) -> None:
        server = WebServer(app, settings, state, events)
        await server.start([listening], lambda _: None)
        ready.set()
        await stop.wait()
        state["peerd"].draining.set()
        server.stop_accepting(close_listeners=True)
        await server.drain(1.0)
        await server.shut_down(1.0)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        host, port = listening.getsockname()
        thread = threading.Thread(target=lambda: loop.run_until_complete(serve(listening)))
        thread.start()
        assert ready.wait(10)
        try:
            yield f"http://{host}:{port}"
        finally:
            while BROWSERS:
                BROWSERS.pop().close()
            loop.call_soon_threadsafe(stop.set)
            thread.join()
            loop.close()


@contextmanager
def serving(
    client: Client,
    access: AccessSettings | None = None,
    *,
    proxies: tuple[str, ...] = (),
    listener: Callable[[Any], None] | None = None,
    **app_options: Any,
) -> Iterator[str]:
    """The API of a client, with settings of its node."""
    events = EventBus(*([listener] if listener is not None else []))
    web = WebSettings(app="peerd.web:app", bind=("127.0.0.1:0",), forwarded_allow_ips=proxies, access_log=True)
    state: dict[str, Any] = {
        "peerd": SimpleNamespace(client=client, draining=asyncio.Event(), messenger=NoAgent()),
        NODE_ACCESS_STATE: NodeAccess(access or AccessSettings()),
    }
    yield from serve_app(create_app(**app_options), web, state, events)


class NoAgent:
    """The messenger of a web process whose node has no agent."""

    async def request(self, *_: object, **__: object) -> None:
        raise RequestFailed("peerd.metrics", "the agent", "there is none")


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


def log_in(address: str, name: str, password: str = PASSWORD) -> httpx.Client:
    """A browser that has logged in; it sends its session and the CSRF token."""
    http = browser(address)
    answer = http.post("/session", json={"name": name, "password": password})
    assert answer.status_code == 201, answer.text
    http.headers["x-csrf-token"] = answer.json()["csrf_token"]
    return http


def browser(address: str, **options: Any) -> httpx.Client:
    """A browser with cookies of its own; it is closed with the server."""
    BROWSERS.append(httpx.Client(base_url=address + API, **options))
    return BROWSERS[-1]


def problem(response: httpx.Response) -> tuple[int, str]:
    """The status and the code of a refusal; one of HEAD has no document."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    if not response.content:
        return response.status_code, {401: "Unauthorized", 403: "NotPermitted"}[response.status_code]
    return response.status_code, response.json()["code"]
