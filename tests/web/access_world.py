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
from peerd.web.access.authentication import Authenticate
from peerd.web_server.app_state import ACCESS_STATE
from peerd.web_server.server import WebServer

PASSWORD = "correct horse battery"
HOST = "jobs.example.com"
API = "/api/v1"
BROWSERS: list[httpx.Client] = []


@contextmanager
def serving(
    client: Client,
    access: AccessSettings | None = None,
    *,
    proxies: tuple[str, ...] = (),
    listener: Callable[[Any], None] | None = None,
    authenticate: Authenticate | None = None,
) -> Iterator[str]:
    """The address of the API of a client, with settings of its node, on peerd's own web server in a thread."""

    async def no_agent(*_: object, **__: object) -> None:
        raise RequestFailed("peerd.metrics", "the agent", "there is none")

    web = WebSettings(app="peerd.web:app", bind=("127.0.0.1:0",), forwarded_allow_ips=proxies, access_log=True)
    draining, stop, ready = asyncio.Event(), asyncio.Event(), threading.Event()
    process = SimpleNamespace(client=client, draining=draining, messenger=SimpleNamespace(request=no_agent))
    state: dict[str, Any] = {"peerd": process, ACCESS_STATE: access or AccessSettings()}
    server = WebServer(
        create_app(authenticate=authenticate), web, state, EventBus(*([listener] if listener is not None else []))
    )
    loop = asyncio.new_event_loop()

    async def serve(listening: socket.socket) -> None:
        await server.start([listening], lambda _: None)
        ready.set()
        await stop.wait()
        draining.set()
        server.stop_accepting(close_listeners=True)
        await server.drain(1.0)
        await server.shut_down(1.0)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=lambda: loop.run_until_complete(serve(listening)))
        thread.start()
        assert ready.wait(10)
        try:
            yield "http://{}:{}".format(*listening.getsockname())
        finally:
            while BROWSERS:
                BROWSERS.pop().close()
            loop.call_soon_threadsafe(stop.set)
            thread.join()
            loop.close()


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
