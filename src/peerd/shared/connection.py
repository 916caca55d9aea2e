"""The other processes' end: one connection to the agent, found again when the agent is replaced."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec

from peerd.runtime.process.uncaught_exceptions import show
from peerd.runtime.unix_socket_path import short_path
from peerd.shared.client import SharedClient
from peerd.shared.errors import AgentLost, NotShared, SharedCallFailed, SharedCallTimedOut, SharedError
from peerd.shared.protocol import (
    FOLLOW_WITHIN,
    SOCKET,
    Call,
    Cancel,
    Failed,
    Follow,
    Garbled,
    Request,
    Returned,
    Unfollow,
    Value,
    answers,
    identity_of,
    is_of_our_user,
    pack,
    read,
)
from peerd.shared.rpc_methods import method_of, name_of
from peerd.shared.subscription import Subscription

FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 1.0
"""Seconds between two looks for an agent."""


class Connection:
    """A source for proxies in a process that is not the agent. It connects when it is first used.

    Args:
        run_directory: the node's.
    """

    def __init__(self, run_directory: Path) -> None:
        self._run_directory = run_directory
        self._numbers = count(1)
        self._waiting: dict[int, _Waiting] = {}
        self._following: dict[int, tuple[str, Subscription]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._connected = asyncio.Event()
        self._living: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Let go of the agent."""
        if self._living is not None:
            self._living.cancel()
            await asyncio.wait((self._living,))
        for _, subscription in list(self._following.values()):
            subscription.close()

    async def call(
        self, kind: type[SharedClient], method: str, args: Sequence[Any], kwargs: Mapping[str, Any], within: float
    ) -> Any:
        """Call a method of the real client; while there is no agent, the call waits for the next one.

        Raises:
            NotCallable: the class has no such method.
            CannotBeCarried: the arguments, or what it returned.
            NotShared: the agent shares no such class.
            SharedCallFailed: the method raised an exception.
            SharedCallTimedOut: no answer within `within` seconds.
            AgentLost: the agent ended before it answered.
        """
        found = method_of(kind, method)
        what = f"{kind.__name__}.{method}()"
        number = next(self._numbers)
        pack(call := Call(number, name_of(kind), method, list(args), dict(kwargs), within), what)
        loop = asyncio.get_running_loop()
        until = loop.time() + within
        scope = asyncio.timeout_at(until)
        try:
            async with scope:
                writer = await self._reach()
                call = msgspec.structs.replace(call, timeout=max(0.0, until - loop.time()))
                return found.result(await self._ask(call, what, writer))
        except TimeoutError as error:
            if isinstance(error, SharedError) or not scope.expired():
                raise
            raise SharedCallTimedOut(what, within, self._state()) from None

    def subscribe(self, kind: type[SharedClient], key: Any) -> Subscription:
        """Follow a key, whichever agent there is.

        Raises:
            CannotBeCarried: it is no key.
        """
        identity_of(key)
        number = next(self._numbers)
        subscription = Subscription(key, lambda _: self._unsubscribe(number))
        self._following[number] = (name_of(kind), subscription)
        self._live()
        if self._writer is not None:
            self._send(Follow(number, name_of(kind), key), self._writer)
        return subscription

    # ---------------------------------------------------------------- calls

    async def _reach(self) -> asyncio.StreamWriter:
        """The way to the agent, once there is one."""
        self._live()
        while self._writer is None:
            await self._connected.wait()
        return self._writer

    async def _ask(self, call: Call, what: str, writer: asyncio.StreamWriter) -> Any:
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[call.id] = _Waiting(what, call.timeout, answered)
        try:
            self._send(call, writer)
            await writer.drain()
            return await answered
        except ConnectionError as error:
            if isinstance(error, AgentLost):
                raise
            raise AgentLost(what) from None
        except asyncio.CancelledError:
            if self._writer is writer:
                self._send(Cancel(call.id), writer)
            raise
        finally:
            self._waiting.pop(call.id, None)
            answered.cancel()

    def _unsubscribe(self, number: int) -> None:
        if self._following.pop(number, None) and self._writer is not None:
            self._send(Unfollow(number), self._writer)

    def _state(self) -> str:
        if self._writer is None:
            return "there is no agent; it is being replaced, see peerd status"
        return "the agent is there, and slow to answer: something blocks its event loop, or the client waits"

    def _send(self, request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(pack(request, "a request"))

    # ---------------------------------------------------------------- the connection's life

    def _live(self) -> None:
        if self._living is None or self._living.done():
            self._living = asyncio.create_task(self._keep_connected(), name="shared connection")

    async def _keep_connected(self) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                reader, writer = await self._connect()
            except OSError:
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            pause = FIRST_PAUSE
            self._writer = writer
            try:
                self._follow_all(writer)
                self._connected.set()
                await self._hear(reader)
            except (msgspec.DecodeError, Garbled, ConnectionError) as error:
                show(error)
                await asyncio.sleep(LONGEST_PAUSE)
            finally:
                self._lose(writer)
            await asyncio.sleep(pause)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        end = socket.socket(socket.AF_UNIX)
        end.setblocking(False)
        try:
            with short_path(self._run_directory) as folder:
                await asyncio.get_running_loop().sock_connect(end, str(folder / SOCKET))
            if not is_of_our_user(end):
                raise PermissionError(f"{SOCKET} is served by another user's process")
            return await asyncio.open_unix_connection(sock=end)
        except BaseException:
            end.close()
            raise

    def _follow_all(self, writer: asyncio.StreamWriter) -> None:
        for number, (client, subscription) in self._following.items():
            self._send(Follow(number, client, subscription.key), writer)

    def _lose(self, writer: asyncio.StreamWriter) -> None:
        self._writer = None
        self._connected.clear()
        writer.close()
        for waiting in self._waiting.values():
            waiting.settle(None, AgentLost(waiting.what))

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        while (body := await read(reader)) is not None:
            match answers.decode(body):
                case Value() as value:
                    if value.id in self._following:
                        self._following[value.id][1].deliver(value.value, value.number, value.generation)
                case Returned() as returned:
                    if waiting := self._waiting.get(returned.id):
                        waiting.settle(returned.value, None)
                case Failed() as failed:
                    self._fail(failed)

    def _fail(self, failed: Failed) -> None:
        if failed.id in self._following:
            client, subscription = self._following.pop(failed.id)
            what = f"{client.rpartition('.')[2]}.subscribe({subscription.key!r})"
            subscription.fail(_error(failed, what, FOLLOW_WITHIN))
        elif waiting := self._waiting.get(failed.id):
            waiting.settle(None, _error(failed, waiting.what, waiting.within))


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A call that waits for its answer."""

    what: str
    within: float
    answered: asyncio.Future[Any]

    def settle(self, value: Any, error: Exception | None) -> None:
        if self.answered.done():
            return
        if error is None:
            self.answered.set_result(value)
        else:
            self.answered.set_exception(error)


def _error(failed: Failed, what: str, within: float) -> SharedError:
    match failed.why:
        case "not-shared":
            return NotShared(failed.text)
        case "timeout":
            return SharedCallTimedOut(what, within, failed.text)
        case _:
            return SharedCallFailed(what, failed.type_name, failed.text)
