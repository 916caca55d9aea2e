"""A web server and a mail server that remember what they are sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class FakeWebServer:
    statuses: list[int] = field(default_factory=lambda: [204])
    bodies: list[Any] = field(default_factory=list)
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line[15:]) for line in head.decode().lower().splitlines() if line.startswith("content-length")
        )
        self.bodies.append(json.loads(await reader.readexactly(length)))
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        writer.write(f"HTTP/1.1 {status} Status\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()


@dataclass
class FakeMailServer:
    password: str | None = None
    mails: list[str] = field(default_factory=list)
    recipients: list[str] = field(default_factory=list)
    address: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        known = self.password is None

        async def reply(line: str) -> None:
            writer.write(f"{line}\r\n".encode())
            await writer.drain()

        await reply("220 mail of the test")
        while line := (await reader.readline()).decode().rstrip():
            verb, _, rest = line.partition(" ")
            match verb.upper():
                case "EHLO":
                    await reply("250-mail of the test")
                    await reply("250 AUTH PLAIN")
                case "AUTH":
                    import base64  # noqa: PLC0415 - this verb only

                    given = base64.b64decode(rest.partition(" ")[2]).split(b"\0")[-1].decode()
                    known = given == self.password
                    await reply("235 welcome" if known else "535 wrong password")
                case "MAIL":
                    await reply("250 fine" if known else "530 log in first")
                case "RCPT":
                    self.recipients.append(rest.partition("<")[2].rstrip(">"))
                    await reply("250 fine")
                case "DATA":
                    await reply("354 go on")
                    text = await reader.readuntil(b"\r\n.\r\n")
                    self.mails.append(text.decode())
                    await reply("250 taken")
                case "QUIT":
                    await reply("221 bye")
                    break
                case _:
                    await reply("250 fine")
        writer.close()


@asynccontextmanager
async def fake_web_server(*statuses: int) -> AsyncIterator[FakeWebServer]:
    web = FakeWebServer(list(statuses) or [204])
    async with await asyncio.start_server(web.serve, "127.0.0.1", 0) as server:
        web.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook?token=secret"
        yield web


@asynccontextmanager
async def fake_mail_server(password: str | None = None) -> AsyncIterator[FakeMailServer]:
    mail = FakeMailServer(password)
    async with await asyncio.start_server(mail.serve, "127.0.0.1", 0) as server:
        mail.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield mail
