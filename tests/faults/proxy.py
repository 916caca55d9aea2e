"""TCP proxies between nodes and their database server, whose mode can be changed while they run.

All proxies of a campaign live on one thread with an event loop of its own; their methods may be called from any other.

The failures of a network are distinguished, because a client sees each differently: nothing comes any more
(`ProxyMode.DROP`: the cut cable), nothing listens (`ProxyMode.REFUSE`), everything is closed (`cut`), and the worst:
the server executed a statement, and its answer was lost (`lose_replies`).
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from enum import StrEnum
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from tests.support.server import PORTS

T = TypeVar("T")
CHUNK: Final = 64 * 1024
PORTS_TO_TRY: Final = 50


class ProxyMode(StrEnum):
    """What a proxy does with connections and bytes."""

    PASS = "pass"
    DROP = "drop"
    """Accept, and swallow all bytes silently. A connection with swallowed bytes is closed afterwards."""
    REFUSE = "refuse"
    """Close what is there, and listen no more."""


class ProxiedConnection:
    """One client's connection and its way on to the server."""

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self.client = client
        self.server: asyncio.StreamWriter | None = None
        self.missed_bytes = False
        self.loses_after: int | None = None
        """Bytes of the next reply that still come through, where it is to be lost."""

    def close(self) -> None:
        """Close both sides at once."""
        self.client.transport.abort()
        if self.server is not None:
            self.server.transport.abort()


class TcpProxy:
    """One port in front of a server. Made by `ProxyThread.proxy`.

    Args:
        call: runs a coroutine on the proxies' event loop, and returns its result.
        target: the server's port on 127.0.0.1.
    """

    def __init__(self, call: Callable[[Coroutine[Any, Any, Any]], Any], target: int) -> None:
        self._call = call
        self._target = target
        self._connections: set[ProxiedConnection] = set()
        self._listening: asyncio.Server | None = None
        self._mode = ProxyMode.PASS
        self._delay = 0.0
        self._bytes_per_second: float | None = None
        self._trap: tuple[int, bytes, int] = (0, b"", 0)
        self.port = 0
        self.lost_replies = 0
        """How many replies were lost so far."""

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    def set_mode(self, mode: ProxyMode, *, delay: float = 0.0, bytes_per_second: float | None = None) -> None:
        """Change what is done with all connections, present and future.

        Args:
            mode: what becomes of them.
            delay: seconds by which each piece is late, in both directions.
            bytes_per_second: how much comes through, in each direction of each connection; None for all.
        """
        self._call(self._set_mode(mode, delay, bytes_per_second))

    def cut(self) -> int:
        """Close all connections now; how many there were. New ones are welcome."""
        return int(self._call(self._cut(lambda _: True)))

    def lose_replies(self, count: int, *, to: bytes = b"COMMIT", after: int = 0) -> None:
        """Let the next requests reach the server, wait for its reply to each, and close instead of passing it on.

        Args:
            count: requests; 0 ends what was set before.
            to: what a request holds to be meant. Empty: any.
            after: bytes of the reply that still come through.
        """
        self._call(self._set_trap(count, to, after))

    # ------------------------------------------------------------ on the loop

    async def listen(self) -> None:
        """Listen on the same port as before, or on a free one."""
        for attempt in range(PORTS_TO_TRY):
            port = self.port or random.choice(PORTS)
            try:
                self._listening = await asyncio.start_server(self._serve, "127.0.0.1", port)
            except OSError:
                if attempt == PORTS_TO_TRY - 1:
                    raise
                await asyncio.sleep(0.05 if self.port else 0.0)
                continue
            self.port = port
            return

    async def close(self) -> None:
        """Listen no more, and close what is there."""
        if self._listening is not None:
            listening, self._listening = self._listening, None
            for socket in listening.sockets:
                asyncio.get_running_loop().remove_reader(socket)
            await asyncio.sleep(0)  # a connection that was just accepted and has lost its listener would stay open
            listening.close()
        await self._cut(lambda _: True)

    async def _set_mode(self, mode: ProxyMode, delay: float, bytes_per_second: float | None) -> None:
        before, self._mode = self._mode, mode
        self._delay, self._bytes_per_second = delay, bytes_per_second
        if mode is ProxyMode.REFUSE:
            await self.close()
        elif self._listening is None:
            await self.listen()
        if before is ProxyMode.DROP and mode is not ProxyMode.DROP:
            await self._cut(lambda connection: connection.missed_bytes or connection.server is None)

    async def _cut(self, which: Callable[[ProxiedConnection], bool]) -> int:
        meant = [connection for connection in self._connections if which(connection)]
        for connection in meant:
            connection.close()
        return len(meant)

    async def _set_trap(self, count: int, to: bytes, after: int) -> None:
        self._trap = (count, to, after)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = ProxiedConnection(writer)
        self._connections.add(connection)
        try:
            if self._mode is ProxyMode.DROP:
                await _swallow(reader)
            else:
                await self._relay(connection, reader)
        except OSError:
            pass  # one of the sides has gone
        finally:
            connection.close()
            self._connections.discard(connection)

    async def _relay(self, connection: ProxiedConnection, client: asyncio.StreamReader) -> None:
        server, connection.server = await asyncio.open_connection("127.0.0.1", self._target)
        ways = [
            asyncio.create_task(self._forward(connection, client, connection.server, self._request)),
            asyncio.create_task(self._forward(connection, server, connection.client, self._reply)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _forward(
        self,
        connection: ProxiedConnection,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        step: Callable[[ProxiedConnection, asyncio.StreamWriter, bytes], Awaitable[bool]],
    ) -> None:
        goes_on = True
        while goes_on and (data := await source.read(CHUNK)):
            if seconds := self._delay + (len(data) / self._bytes_per_second if self._bytes_per_second else 0.0):
                await asyncio.sleep(seconds)
            if self._mode is ProxyMode.DROP:
                connection.missed_bytes = True
            else:
                goes_on = await step(connection, sink, data)

    async def _request(self, connection: ProxiedConnection, server: asyncio.StreamWriter, data: bytes) -> bool:
        count, to, after = self._trap
        if count and to in data:
            self._trap = (count - 1, to, after)
            connection.loses_after = after
        server.write(data)
        await server.drain()
        return True

    async def _reply(self, connection: ProxiedConnection, client: asyncio.StreamWriter, data: bytes) -> bool:
        if connection.loses_after is None:
            client.write(data)
            await client.drain()
            return True
        client.write(data[: connection.loses_after])
        await client.drain()
        self.lost_replies += 1
        return False


class ProxyThread:
    """The thread that all proxies live on. A context manager: leaving it closes them.

    Example:
        with ProxyThread() as proxies:
            proxy = proxies.proxy(server.port)
            proxy.set_mode(ProxyMode.DROP)
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)
        self._proxies: list[TcpProxy] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def proxy(self, target: int) -> TcpProxy:
        """A new proxy in front of a port of 127.0.0.1; it listens already."""
        made = TcpProxy(self._call, target)
        self._call(made.listen())
        self._proxies.append(made)
        return made

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _close(self) -> None:
        """Until no connection is left; a task that is cancelled before its first step would leave a socket open."""
        begun: set[asyncio.Task[Any]] = set()
        ended = False
        while not ended:
            for proxy in self._proxies:
                await proxy.close()
            await asyncio.sleep(0.01)
            rest = asyncio.all_tasks() - {asyncio.current_task()}
            for task in rest & begun:
                task.cancel()
            begun, ended = rest, not rest


async def _swallow(reader: asyncio.StreamReader) -> None:
    with suppress(OSError):
        while await reader.read(CHUNK):
            pass
