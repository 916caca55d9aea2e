"""The app of a cluster under test. Files in GATES open what waits."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


async def app(scope: Any, receive: Any, send: Any) -> None:
    slot = scope["state"]["peerd"].slot
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
    elif scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": message["text"].upper()})
    else:
        if scope["path"] == "/gated":
            (HERE / "entered").touch()
            while not (HERE / "gate").exists():  # noqa: ASYNC110 - the test makes it
                await asyncio.sleep(0.02)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(slot))]})
        await send({"type": "http.response.body", "body": slot.encode()})


async def lifespan(receive: Any, send: Any) -> None:
    await receive()
    if (HERE / "broken").exists():
        raise LookupError("there is no cache")
    await send({"type": "lifespan.startup.complete"})
    await receive()
    with (HERE / "ended").open("a") as file:
        file.write("ended\n")
    await send({"type": "lifespan.shutdown.complete"})
