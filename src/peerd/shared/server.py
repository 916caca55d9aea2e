"""The agent's end: a unix socket in the run directory, at which the other processes of the node call and follow.

Values of up to 8 MiB must not pass the event loop of the master, so shared clients have a socket of their own.
There is no heartbeat: the kernel tells each side of the other's end at once, and an agent whose event loop is blocked
is slow, not dead. The timeout of each call limits the wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from peerd.runtime.process.uncaught_exceptions import exception_text, log_exception
from peerd.runtime.sockets import closed_on_error, short_socket_directory
from peerd.shared import protocol
from peerd.shared.client import Subscription
from peerd.shared.shared_instance import SharedRegistry

MAX_CALLS: Final = 1_000
"""Running calls of one process; beyond it nothing is read from it until some have ended."""
MAX_SUBSCRIPTIONS: Final = 10_000  # of one process


class SharedServer:
    """Serves the shared clients of an agent to the other processes of its node."""

    def __init__(self, registry: SharedRegistry) -> None:
        self._registry = registry
        self._sessions: set[asyncio.Task[None]] = set()

    async def run(self, run_directory: Path) -> None:
        """Listen until cancelled, in place of an earlier agent.

        Raises:
            OSError: no socket can be made in the run directory.
        """
        listener = _listen(run_directory)
        loop = asyncio.get_running_loop()
        try:
            while True:
                connection, _ = await loop.sock_accept(listener)
                session = asyncio.create_task(self._serve(connection), name="shared client session")
                self._sessions.add(session)
                session.add_done_callback(self._sessions.discard)
        finally:
            listener.close()
            await self.disconnect_all()

    async def disconnect_all(self) -> None:
        """End all connections; the processes connect again, and follow their keys anew."""
        sessions = list(self._sessions)
        for session in sessions:
            session.cancel()
        if sessions:
            await asyncio.wait(sessions)

    async def _serve(self, connection: socket.socket) -> None:
        if not protocol.is_same_user(connection):
            connection.close()
            return
        connection.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=connection)
        session = _ClientSession(self._registry, writer)
        try:
            await session.serve(reader)
        finally:
            session.close()
            writer.close()


@dataclass(eq=False)
class _ClientSession:
    """The connection of one process that uses shared clients."""

    registry: SharedRegistry
    writer: asyncio.StreamWriter

    def __post_init__(self) -> None:
        self._calls: dict[int, asyncio.Task[None]] = {}
        # subscriptions whose instance is not shared yet
        self._follows: dict[int, asyncio.Task[None]] = {}
        self._subscriptions: dict[int, Subscription] = {}
        self._call_slots = asyncio.Semaphore(MAX_CALLS)
        # with each, whether it answers a call, whose slot is free when the process has read it
        self._replies: list[tuple[protocol.SharedReply, bool]] = []
        self._reply_ready = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader) -> None:
        writing = asyncio.create_task(self._write_replies(), name="shared replies")
        try:
            while (body := await protocol.read_body(reader)) is not None:
                await self._handle_request(protocol.request_decoder.decode(body))
        except (msgspec.DecodeError, protocol.SharedProtocolError, ConnectionError) as error:
            log_exception(error)
        finally:
            writing.cancel()

    def close(self) -> None:
        for task in (*self._calls.values(), *self._follows.values()):
            task.cancel()
        for subscription in list(self._subscriptions.values()):
            subscription.close()

    async def _handle_request(self, request: Any) -> None:
        match request:
            case protocol.CallRequest():
                await self._call_slots.acquire()
                self._calls[request.id] = asyncio.create_task(self._call(request), name=f"call {request.method}")
            case protocol.CancelRequest():
                if request.id in self._calls:
                    self._calls[request.id].cancel()
            case protocol.FollowRequest():
                self._follows[request.id] = asyncio.create_task(self._follow(request), name="follow")
            case protocol.UnfollowRequest():
                if task := self._follows.pop(request.id, None):
                    task.cancel()
                if subscription := self._subscriptions.pop(request.id, None):
                    subscription.close()

    async def _call(self, call: protocol.CallRequest) -> None:
        try:
            timeout = min(max(call.timeout, 0.0), protocol.MAX_CALL_TIMEOUT)
            instance = await self.registry.instance(call.client, timeout)
            reply = protocol.CallReply(call.id, await instance.call(call.method, call.args, call.kwargs, timeout))
            protocol.encode_message(reply, f"what {instance.kind.__name__}.{call.method}() returned")
            self._queue_reply(reply, is_of_call=True)
        except asyncio.CancelledError:
            self._call_slots.release()
        except BaseException as error:  # noqa: BLE001 - any error is the caller's
            self._queue_reply(_error_reply(call.id, error), is_of_call=True)
        finally:
            self._calls.pop(call.id, None)

    async def _follow(self, follow: protocol.FollowRequest) -> None:
        try:
            instance = await self.registry.instance(follow.client, protocol.FOLLOW_TIMEOUT)
            if len(self._subscriptions) >= MAX_SUBSCRIPTIONS:
                raise protocol.NotSerializable("one more subscription", f"a process may have {MAX_SUBSCRIPTIONS:,}")
            self._subscriptions[follow.id] = subscription = Subscription(
                follow.key, lambda ended: instance.unfollow(follow.key, ended), self._reply_ready
            )
            instance.follow(follow.key, subscription)
        except asyncio.CancelledError:
            return
        except BaseException as error:  # noqa: BLE001 - any error is the subscriber's
            self._subscriptions.pop(follow.id, None)
            self._queue_reply(_error_reply(follow.id, error))
        finally:
            self._follows.pop(follow.id, None)

    def _queue_reply(self, reply: protocol.SharedReply, *, is_of_call: bool = False) -> None:
        self._replies.append((reply, is_of_call))
        self._reply_ready.set()

    async def _write_replies(self) -> None:
        """Write as fast as the process reads; meanwhile updates wait in backlogs of limited length."""
        with contextlib.suppress(ConnectionError):
            while True:
                await self._reply_ready.wait()
                self._reply_ready.clear()
                replies, self._replies = self._replies, []
                for reply, is_of_call in replies:
                    self.writer.write(protocol.encode_message(reply, "an answer"))
                    await self.writer.drain()
                    if is_of_call:
                        self._call_slots.release()
                for number, subscription in list(self._subscriptions.items()):
                    while (value := subscription.take()) is not None:
                        self.writer.write(protocol.encode_message(protocol.ValueReply(number, *value), "a value"))
                        await self.writer.drain()
                    if subscription.error is not None:
                        self._subscriptions.pop(number, None)
                        self._queue_reply(_error_reply(number, subscription.error))


def _error_reply(number: int, error: BaseException) -> protocol.ErrorReply:
    match error:
        case protocol.NotShared():
            return protocol.ErrorReply(number, "not-shared", text=error.name)
        case protocol.SharedCallTimedOut():
            return protocol.ErrorReply(number, "timeout", text=str(error).rpartition(": ")[2])
        case protocol.SharedCallFailed():
            return protocol.ErrorReply(number, "raised", error.type_name, error.text)
        case _:
            return protocol.ErrorReply(number, "raised", type(error).__name__, exception_text(error))


def _listen(run_directory: Path) -> socket.socket:
    """A socket that only its owner may open. It replaces an earlier one in one step: there is always one."""
    listener = socket.socket(socket.AF_UNIX)
    with closed_on_error(listener):
        os.fchmod(listener.fileno(), 0o600)  # the mode of its file when it is bound
        with short_socket_directory(run_directory) as folder:
            own = folder / f"{protocol.SOCKET_NAME}.{os.getpid()}"
            own.unlink(missing_ok=True)
            listener.bind(str(own))
            own.rename(folder / protocol.SOCKET_NAME)
        listener.listen(socket.SOMAXCONN)
        listener.setblocking(False)
    return listener
