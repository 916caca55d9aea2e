"""The end of the other processes: one connection to the agent, opened again when the agent is replaced."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from peerd.domain.pacing import Backoff
from peerd.runtime.process.uncaught_exceptions import log_exception
from peerd.runtime.sockets import closed_on_error, short_socket_directory
from peerd.shared import protocol
from peerd.shared.client import SharedClient, Subscription, convert_result, method_of, name_of
from peerd.shared.protocol import SharedError

MIN_RECONNECT_DELAY: Final = 0.05
MAX_RECONNECT_DELAY: Final = 1.0
"""Seconds between two attempts to connect."""


class _PendingCall(NamedTuple):
    what: str
    within: float
    answered: asyncio.Future[Any]


class SharedConnection:
    """The backend of proxies outside the agent. It connects when it is first used."""

    def __init__(self, run_directory: Path) -> None:
        self._run_directory = run_directory
        self._numbers = count(1)
        self._pending_calls: dict[int, _PendingCall] = {}
        # with the name of their class
        self._subscriptions: dict[int, tuple[str, Subscription]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._connected = asyncio.Event()
        self._connecting_task: asyncio.Task[None] | None = None

    async def close(self) -> None:
        if self._connecting_task is not None:
            self._connecting_task.cancel()
            await asyncio.wait((self._connecting_task,))
        for _, subscription in list(self._subscriptions.values()):
            subscription.close()

    async def call(
        self, kind: type[SharedClient], method: str, args: Sequence[Any], kwargs: Mapping[str, Any], within: float
    ) -> Any:
        """Call a method of the real client; while there is no agent, the call waits for the next one.

        Raises:
            NoSuchSharedMethod: the class has no such method.
            NotSerializable: the arguments, or the result.
            NotShared: the agent shares no such class.
            SharedCallFailed: the method raised an exception.
            SharedCallTimedOut: no answer within `within` seconds.
            AgentLost: the agent ended before it answered.
        """
        function = method_of(kind, method)
        what = f"{kind.__name__}.{method}()"
        call = protocol.CallRequest(next(self._numbers), name_of(kind), method, list(args), dict(kwargs), within)
        protocol.encode_message(call, what)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        scope = asyncio.timeout_at(deadline)
        try:
            async with scope:
                self._ensure_connecting()
                while (writer := self._writer) is None:
                    await self._connected.wait()
                call = msgspec.structs.replace(call, timeout=max(0.0, deadline - loop.time()))
                return convert_result(function, await self._send_call(call, what, writer))
        except TimeoutError as error:
            if isinstance(error, SharedError) or not scope.expired():
                raise
            state = "the agent is there, and slow to answer: something blocks its event loop, or the client waits"
            if self._writer is None:
                state = "there is no agent; it is being replaced, see peerd status"
            raise protocol.SharedCallTimedOut(what, within, state) from None

    def subscribe(self, kind: type[SharedClient], key: Any) -> Subscription:
        """Follow a key, across replacements of the agent.

        Raises:
            NotSerializable: it cannot be a key.
        """
        protocol.key_identity(key)
        number = next(self._numbers)
        subscription = Subscription(key, lambda _: self._unsubscribe(number))
        self._subscriptions[number] = (name_of(kind), subscription)
        self._ensure_connecting()
        if self._writer is not None:
            _send(protocol.FollowRequest(number, name_of(kind), key), self._writer)
        return subscription

    async def _send_call(self, call: protocol.CallRequest, what: str, writer: asyncio.StreamWriter) -> Any:
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending_calls[call.id] = _PendingCall(what, call.timeout, answered)
        try:
            _send(call, writer)
            await writer.drain()
            return await answered
        except ConnectionError as error:
            if isinstance(error, protocol.AgentLost):
                raise
            raise protocol.AgentLost(what) from None
        except asyncio.CancelledError:
            if self._writer is writer:
                _send(protocol.CancelRequest(call.id), writer)
            raise
        finally:
            self._pending_calls.pop(call.id, None)
            answered.cancel()

    def _unsubscribe(self, number: int) -> None:
        if self._subscriptions.pop(number, None) and self._writer is not None:
            _send(protocol.UnfollowRequest(number), self._writer)

    # ---------------------------------------------------------------- the connection's life

    def _ensure_connecting(self) -> None:
        if self._connecting_task is None or self._connecting_task.done():
            self._connecting_task = asyncio.create_task(self._keep_connected(), name="shared connection")

    async def _keep_connected(self) -> None:
        pauses = Backoff(MIN_RECONNECT_DELAY, MAX_RECONNECT_DELAY, jitter=0.0)
        while True:
            try:
                reader, writer = await self._connect()
            except OSError:
                await asyncio.sleep(pauses.next())
                continue
            pauses.reset()
            self._writer = writer
            try:
                for number, (client, subscription) in self._subscriptions.items():
                    _send(protocol.FollowRequest(number, client, subscription.key), writer)
                self._connected.set()
                await self._receive_replies(reader)
            except (msgspec.DecodeError, protocol.SharedProtocolError, ConnectionError) as error:
                log_exception(error)
                await asyncio.sleep(MAX_RECONNECT_DELAY)
            finally:
                self._disconnect(writer)
            await asyncio.sleep(MIN_RECONNECT_DELAY)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        connection = socket.socket(socket.AF_UNIX)
        connection.setblocking(False)
        with closed_on_error(connection):
            with short_socket_directory(self._run_directory) as folder:
                await asyncio.get_running_loop().sock_connect(connection, str(folder / protocol.SOCKET_NAME))
            if not protocol.is_same_user(connection):
                raise PermissionError(f"{protocol.SOCKET_NAME} is served by another user's process")
            return await asyncio.open_unix_connection(sock=connection)

    def _disconnect(self, writer: asyncio.StreamWriter) -> None:
        self._writer = None
        self._connected.clear()
        writer.close()
        for number, pending_call in self._pending_calls.items():
            self._answer(number, protocol.AgentLost(pending_call.what))

    async def _receive_replies(self, reader: asyncio.StreamReader) -> None:
        while (body := await protocol.read_body(reader)) is not None:
            match protocol.reply_decoder.decode(body):
                case protocol.ValueReply() as reply:
                    if reply.id in self._subscriptions:
                        self._subscriptions[reply.id][1].deliver(reply.value, reply.number, reply.generation)
                case protocol.CallReply(number, value):
                    self._answer(number, value)
                case protocol.ErrorReply() as reply:
                    self._handle_error(reply)

    def _handle_error(self, reply: protocol.ErrorReply) -> None:
        if reply.id in self._subscriptions:
            client, subscription = self._subscriptions.pop(reply.id)
            what = f"{client.rpartition('.')[2]}.subscribe({subscription.key!r})"
            subscription.fail(_error(reply, what, protocol.FOLLOW_TIMEOUT))
        elif pending_call := self._pending_calls.get(reply.id):
            self._answer(reply.id, _error(reply, pending_call.what, pending_call.within))

    def _answer(self, number: int, result: Any) -> None:
        """End a pending call with its result, or with a `SharedError`, which is never a result."""
        with suppress(KeyError, asyncio.InvalidStateError):  # its caller has stopped waiting
            answered = self._pending_calls[number].answered
            if isinstance(result, SharedError):
                answered.set_exception(result)
            else:
                answered.set_result(result)


def _send(request: protocol.SharedRequest, writer: asyncio.StreamWriter) -> None:
    writer.write(protocol.encode_message(request, "a request"))


def _error(reply: protocol.ErrorReply, what: str, within: float) -> SharedError:
    match reply.why:
        case "not-shared":
            return protocol.NotShared(reply.text)
        case "timeout":
            return protocol.SharedCallTimedOut(what, within, reply.text)
        case _:
            return protocol.SharedCallFailed(what, reply.type_name, reply.text)
