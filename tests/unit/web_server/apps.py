"""ASGI apps for tests, and a client that reads the raw bytes."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import Any


class App:
    """Answers with the path; some paths do more. `gate` holds `/gated` until it is set."""

    def __init__(self) -> None:
        self.gate, self.entered = asyncio.Event(), asyncio.Event()
        self.lifespan: list[str] = []
        self.states: list[Any] = []
        self.after: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.states.append((scope["type"], scope["state"].get("peerd")))
        match scope["type"]:
            case "lifespan":
                for event in ("startup", "shutdown"):
                    assert (await receive())["type"] == f"lifespan.{event}"
                    self.lifespan.append(event)
                    await send({"type": f"lifespan.{event}.complete"})
            case "websocket":
                await self._converse(scope["path"], receive, send)
            case _:
                await self._answer(scope["path"], receive, send)

    async def _answer(self, path: str, receive: Any, send: Any) -> None:
        self.entered.set()
        if path == "/gated":
            await self.gate.wait()
        if path == "/broken":
            raise RuntimeError("it is broken")
        if path == "/leaves":
            raise SystemExit(3)
        body = path.encode()
        await _begin(send, body, (b"connection", b"keep-alive"))
        if path == "/halfway":
            await self.gate.wait()
        await send({"type": "http.response.body", "body": body})
        if path == "/afterwards":
            await self.gate.wait()
            self.after.append(path)

    async def _converse(self, path: str, receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "websocket.connect"
        if path == "/unaccepted":
            self.entered.set()
            await self.gate.wait()
        await send({"type": "websocket.accept"})
        if path == "/pushes":
            while True:
                await send({"type": "websocket.send", "text": "tick"})
                await asyncio.sleep(0.01)
        while (message := await receive())["type"] == "websocket.receive":
            self.entered.set()
            if message["text"] == "gated":
                await self.gate.wait()
            await send({"type": "websocket.send", "text": message["text"].upper()})
        self.after.append(f"disconnected with {message['code']}")


async def _begin(send: Any, body: bytes, *more: tuple[bytes, bytes]) -> None:
    headers = [(b"content-length", str(len(body)).encode()), *more]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


class Reading:
    """Reads the whole body, as soon as `gate` is set, and answers with its size; `/echo` begins its answer before."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.headers: list[tuple[bytes, bytes]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        await self.gate.wait()
        if scope["path"] == "/echo":
            await send({"type": "http.response.start", "status": 200, "headers": []})
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            size += len(message["body"])
            more = message["more_body"]
        self.headers = list(scope["headers"])
        body = str(size).encode()
        await _begin(send, body)
        await send({"type": "http.response.body", "body": body})


class RawConnection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, text: str) -> None:
        self.writer.write(text.replace("\n", "\r\n").encode())

    def request(self, path: str, more: str = "") -> None:
        self.send(f"GET {path} HTTP/1.1\nhost: test\n{more}\n")

    async def answer(self) -> tuple[int, dict[str, str], str]:
        async with asyncio.timeout(10):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
            status, *lines = head.strip().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines)
            assert len(headers) == len(lines), f"a header came twice: {lines}"
            body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return int(status.split()[1]), headers, body.decode()

    async def answer_while_sending(self, data: bytes, at_most: int = 400) -> tuple[int, dict[str, str], str]:
        """The answer that comes while these bytes are sent again and again.

        They go past the stream: it drops the received answer when a write fails, as it does once the server has closed.
        """
        answer = asyncio.ensure_future(self.answer())
        client = self.writer.get_extra_info("socket")
        for _ in range(at_most):
            if (await asyncio.wait({answer}, timeout=0.02))[0]:
                break
            with suppress(OSError):
                os.write(client.fileno(), data)
        assert answer.done(), "it may send for ever"
        return await answer

    async def answered(self, path: str) -> tuple[int, str | None, str]:
        self.request(path)
        status, headers, body = await self.answer()
        return status, headers.get("connection"), body

    async def ended(self) -> bytes:
        """What comes until the server closes the connection."""
        async with asyncio.timeout(10):
            return await self.reader.read()
