"""The app of a cluster under test. What waits is opened by a file `gate`."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


async def app(scope: Any, receive: Any, send: Any) -> None:
    process = scope["state"]["peerd"]
    if scope["type"] == "lifespan":
        process.messenger.on("note", lambda message: (HERE / f"{message.data}-{process.slot}").touch())
        await lifespan(process.slot, receive, send)
    elif scope["type"] == "websocket":
        await converse(receive, send)
    else:
        while scope["path"] == "/reads" and (await receive()).get("more_body"):
            pass
        await act(scope["path"], process)
        body = process.slot.encode()
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


async def lifespan(slot: str, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    with (HERE / "ended").open("a") as file:
        file.write(f"{slot}\n")
    await send({"type": "lifespan.shutdown.complete"})


async def converse(receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": message["text"].upper()})


async def act(path: str, process: Any) -> None:
    match path:
        case "/gated":
            (HERE / "entered").touch()
            await opened()
        case "/fails":
            raise LookupError("there is no such page")
        case "/taints":
            careless = threading.Thread(target=lambda: 1 / 0)
            careless.start()
            careless.join()
        case "/later":
            process.run_in_background(later())
        case "/notify":
            process.messenger.send_to_workers("note", process.options["word"])


async def scheduled() -> None:
    (HERE / "scheduled").touch()


async def later() -> None:
    await opened()
    (HERE / "later").touch()


async def opened() -> None:
    while not (HERE / "gate").exists():  # noqa: ASYNC110 - the test makes it
        await asyncio.sleep(0.02)
