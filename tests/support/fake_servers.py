"""A web server and a mail server that remember what they are sent."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class FakeWebServer:
    """Answers each POST with the next status of `statuses`, the last one again and again."""

    statuses: list[int]
    bodies: list[Any] = field(default_factory=list)
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length:")[2].splitlines()[0])
        self.bodies.append(json.loads(await reader.readexactly(length)))
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        writer.write(f"HTTP/1.1 {status} Status\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()


@dataclass
class FakeMailServer:
    """Takes every mail, from users with the right password only where there are any."""

    password: str | None = None
    mails: list[str] = field(default_factory=list)
    recipients: list[str] = field(default_factory=list)
    address: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        known, answer = self.password is None, "220 mail of the test"
        while True:
            writer.write(f"{answer}\r\n".encode())
            await writer.drain()
            verb, _, rest = (await reader.readline()).decode().rstrip().partition(" ")
            match verb.upper():
                case "EHLO":
                    answer = "250-mail of the test\r\n250 AUTH PLAIN"
                case "AUTH":
                    given = base64.b64decode(rest.partition(" ")[2]).split(b"\0")[-1].decode()
                    known = given == self.password
                    answer = "235 welcome" if known else "535 wrong password"
                case "MAIL":
                    answer = "250 fine" if known else "530 log in first"
                case "RCPT":
                    self.recipients.append(rest.partition("<")[2].rstrip(">"))
                    answer = "250 fine"
                case "DATA":
                    writer.write(b"354 go on\r\n")
                    self.mails.append((await reader.readuntil(b"\r\n.\r\n")).decode())
                    answer = "250 taken"
                case "QUIT" | "":
                    break
                case _:
                    answer = "250 fine"
        writer.write(b"221 bye\r\n")
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
