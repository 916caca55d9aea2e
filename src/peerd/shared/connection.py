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

from peerd.domain.backoff import Backoff
from peerd.runtime.process.uncaught_exceptions import log_exception
from peerd.runtime.unix_socket_path import short_socket_directory
from peerd.shared.client import SharedClient
from peerd.shared.errors import AgentLost, NotShared, SharedCallFailed, SharedCallTimedOut, SharedError
from peerd.shared.protocol import (
    FOLLOW_TIMEOUT,
    SOCKET_NAME,
    CallReply,
    CallRequest,
    CancelRequest,
    ErrorReply,
    FollowRequest,
    SharedProtocolError,
    SharedRequest,
    UnfollowRequest,
    ValueReply,
    encode_message,
    is_same_user,
    key_identity,
    read_body,
    reply_decoder,
)
from peerd.shared.rpc_methods import method_of, name_of
from peerd.shared.subscription import Subscription

MIN_RECONNECT_DELAY: Final = 0.05
MAX_RECONNECT_DELAY: Final = 1.0
"""Seconds between two looks for an agent."""


class SharedConnection:
    """A source for proxies in a process that is not the agent. It connects when it is first used.

    Args:
        run_directory: the node's.
    """

    def __init__(self, run_directory: Path) -> None:
        self._run_directory = run_directory
        self._numbers = count(1)
        self._pending_calls: dict[int, _PendingCall] = {}
        self._following: dict[int, tuple[str, Subscription]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._connected = asyncio.Event()
        self._connecting_task: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Let go of the agent."""
        if self._connecting_task is not None:
            self._connecting_task.cancel()
            await asyncio.wait((self._connecting_task,))
        for _, subscription in list(self._following.values()):
            subscription.close()

    async def call(
        self, kind: type[SharedClient], method: str, args: Sequence[Any], kwargs: Mapping[str, Any], within: float
    ) -> Any:
        """Call a method of the real client; while there is no agent, the call waits for the next one.

        Raises:
            NoSuchSharedMethod: the class has no such method.
            NotSerializable: the arguments, or what it returned.
            NotShared: the agent shares no such class.
            SharedCallFailed: the method raised an exception.
            SharedCallTimedOut: no answer within `within` seconds.
            AgentLost: the agent ended before it answered.
        """
        found = method_of(kind, method)
        what = f"{kind.__name__}.{method}()"
        number = next(self._numbers)
        encode_message(call := CallRequest(number, name_of(kind), method, list(args), dict(kwargs), within), what)
        loop = asyncio.get_running_loop()
        until = loop.time() + within
        scope = asyncio.timeout_at(until)
        try:
            async with scope:
                writer = await self._wait_connected()
                call = msgspec.structs.replace(call, timeout=max(0.0, until - loop.time()))
                return found.result(await self._send_call(call, what, writer))
        except TimeoutError as error:
            if isinstance(error, SharedError) or not scope.expired():
                raise
            raise SharedCallTimedOut(what, within, self._state()) from None

    def subscribe(self, kind: type[SharedClient], key: Any) -> Subscription:
        """Follow a key, whichever agent there is.

        Raises:
            NotSerializable: it is no key.
        """
        key_identity(key)
        number = next(self._numbers)
        subscription = Subscription(key, lambda _: self._unsubscribe(number))
        self._following[number] = (name_of(kind), subscription)
        self._ensure_connecting()
        if self._writer is not None:
            self._send(FollowRequest(number, name_of(kind), key), self._writer)
        return subscription

    # ---------------------------------------------------------------- calls

    async def _wait_connected(self) -> asyncio.StreamWriter:
        """The way to the agent, once there is one."""
        self._ensure_connecting()
        while self._writer is None:
            await self._connected.wait()
        return self._writer

    async def _send_call(self, call: CallRequest, what: str, writer: asyncio.StreamWriter) -> Any:
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending_calls[call.id] = _PendingCall(what, call.timeout, answered)
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
                self._send(CancelRequest(call.id), writer)
            raise
        finally:
            self._pending_calls.pop(call.id, None)
            answered.cancel()

    def _unsubscribe(self, number: int) -> None:
        if self._following.pop(number, None) and self._writer is not None:
            self._send(UnfollowRequest(number), self._writer)

    def _state(self) -> str:
        if self._writer is None:
            return "there is no agent; it is being replaced, see peerd status"
        return "the agent is there, and slow to answer: something blocks its event loop, or the client waits"

    def _send(self, request: SharedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(encode_message(request, "a request"))

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
                self._follow_all(writer)
                self._connected.set()
                await self._receive_replies(reader)
            except (msgspec.DecodeError, SharedProtocolError, ConnectionError) as error:
                log_exception(error)
                await asyncio.sleep(MAX_RECONNECT_DELAY)
            finally:
                self._disconnect(writer)
            await asyncio.sleep(MIN_RECONNECT_DELAY)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        end = socket.socket(socket.AF_UNIX)
        end.setblocking(False)
        try:
            with short_socket_directory(self._run_directory) as folder:
                await asyncio.get_running_loop().sock_connect(end, str(folder / SOCKET_NAME))
            if not is_same_user(end):
                raise PermissionError(f"{SOCKET_NAME} is served by another user's process")
            return await asyncio.open_unix_connection(sock=end)
        except BaseException:
            end.close()
            raise

    def _follow_all(self, writer: asyncio.StreamWriter) -> None:
        for number, (client, subscription) in self._following.items():
            self._send(FollowRequest(number, client, subscription.key), writer)

    def _disconnect(self, writer: asyncio.StreamWriter) -> None:
        self._writer = None
        self._connected.clear()
        writer.close()
        for pending_call in self._pending_calls.values():
            pending_call.resolve(None, AgentLost(pending_call.what))

    async def _receive_replies(self, reader: asyncio.StreamReader) -> None:
        while (body := await read_body(reader)) is not None:
            match reply_decoder.decode(body):
                case ValueReply() as value:
                    if value.id in self._following:
                        self._following[value.id][1].deliver(value.value, value.number, value.generation)
                case CallReply() as returned:
                    if pending_call := self._pending_calls.get(returned.id):
                        pending_call.resolve(returned.value, None)
                case ErrorReply() as failed:
                    self._handle_error(failed)

    def _handle_error(self, failed: ErrorReply) -> None:
        if failed.id in self._following:
            client, subscription = self._following.pop(failed.id)
            what = f"{client.rpartition('.')[2]}.subscribe({subscription.key!r})"
            subscription.fail(_error(failed, what, FOLLOW_TIMEOUT))
        elif pending_call := self._pending_calls.get(failed.id):
            pending_call.resolve(None, _error(failed, pending_call.what, pending_call.within))


@dataclass(frozen=True, slots=True)
class _PendingCall:
    """A call that waits for its answer."""

    what: str
    within: float
    answered: asyncio.Future[Any]

    def resolve(self, value: Any, error: Exception | None) -> None:
        if self.answered.done():
            return
        if error is None:
            self.answered.set_result(value)
        else:
            self.answered.set_exception(error)


def _error(failed: ErrorReply, what: str, within: float) -> SharedError:
    match failed.why:
        case "not-shared":
            return NotShared(failed.text)
        case "timeout":
            return SharedCallTimedOut(what, within, failed.text)
        case _:
            return SharedCallFailed(what, failed.type_name, failed.text)
