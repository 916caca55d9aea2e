"""Clients of an HTTP server, in a process of their own. They count what failed, and how.

    python -m bench.web_load PORT NEW BUSY IDLE        until its standard input ends; then it prints a JSON object

NEW clients make a connection for each request. BUSY ones keep theirs and ask again at once; IDLE ones keep theirs too,
and pause for up to two seconds. A client that keeps its connection looks before each request whether the server has
closed it, as client libraries do, and makes a new one then; what is lost after that look is a failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
from collections import Counter
from typing import Final

WITHIN: Final = 20.0
LONGEST_PAUSE: Final = 2.0
KINDS: Final = ("new", "busy", "idle")


class RequestLost(Exception):
    """A request was not answered; the text says how."""


class LoadClient:
    """One client: a request after the other, until it is stopped."""

    def __init__(self, port: int, kind: str) -> None:
        self._port = port
        self._kind = kind
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self.counts: Counter[str] = Counter()

    async def run(self, stopped: asyncio.Event) -> None:
        """Ask, and count."""
        while not stopped.is_set():
            try:
                async with asyncio.timeout(WITHIN):
                    await self._ask()
                self.counts["ok"] += 1
            except TimeoutError:
                await self._fail("no answer in time")
            except RequestLost as lost:
                await self._fail(str(lost))
            if self._kind == "idle":
                await asyncio.sleep(random.uniform(0, LONGEST_PAUSE))
        await self._close()

    async def _ask(self) -> None:
        if self._writer is None or self._reader is None or self._reader.at_eof():
            await self._close()
            await self._connect()
        assert self._writer is not None
        assert self._reader is not None
        close = "connection: close\r\n" if self._kind == "new" else ""
        try:
            self._writer.write(f"GET / HTTP/1.1\r\nhost: localhost\r\n{close}\r\n".encode())
            await self._writer.drain()
            keep = await self._read(self._reader)
        except ConnectionError as error:
            raise RequestLost(f"{type(error).__name__} in the request") from error
        except asyncio.IncompleteReadError as error:
            raise RequestLost(
                "closed in the middle of the answer" if error.partial else "closed without an answer"
            ) from error
        if self._kind == "new" or not keep:
            await self._close()

    async def _read(self, reader: asyncio.StreamReader) -> bool:
        """Read one answer; whether the connection may be used again."""
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = next((int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")), 0)
        await reader.readexactly(length)
        status = head.split(b" ", 2)[1].decode()
        if status != "200":
            raise RequestLost(f"status {status}")
        return b"connection: close" not in head

    async def _connect(self) -> None:
        try:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError as error:
            raise RequestLost(f"{type(error).__name__} in connecting") from error

    async def _fail(self, how: str) -> None:
        self.counts[how] += 1
        await self._close()
        await asyncio.sleep(0.01)  # a door that is closed is not to be run against a thousand times

    async def _close(self) -> None:
        writer, self._reader, self._writer = self._writer, None, None
        if writer is not None:
            writer.close()
            with contextlib.suppress(OSError):  # it was reset: what matters has been counted
                await writer.wait_closed()


async def load(port: int, numbers: dict[str, int]) -> dict[str, dict[str, int]]:
    """Run so many clients of each kind until standard input ends; their counts by kind."""
    clients = {kind: [LoadClient(port, kind) for _ in range(number)] for kind, number in numbers.items()}
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, stopped.set)
    await asyncio.gather(*(client.run(stopped) for some in clients.values() for client in some))
    return {kind: dict(sum((client.counts for client in some), Counter())) for kind, some in clients.items()}


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:5]]
    print(json.dumps(asyncio.run(load(given[0], dict(zip(KINDS, given[1:], strict=True))))))
