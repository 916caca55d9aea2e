"""The agent's end: a unix socket in the run directory, at which the processes of the node call and follow.

It has no heartbeat: the kernel tells each side of the other's end at once, and an agent that does not answer because
something blocks its event loop is slow, not dead. What limits the wait is the timeout of each call.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from pathlib import Path
from typing import Any, Final

import msgspec

from peerd.runtime.process.uncaught_exceptions import exception_text, log_exception
from peerd.runtime.unix_socket_path import short_socket_directory
from peerd.shared.errors import NoSuchSharedMethod, NotSerializable, NotShared, SharedCallFailed, SharedCallTimedOut
from peerd.shared.protocol import (
    FOLLOW_TIMEOUT,
    MAX_CALL_TIMEOUT,
    SOCKET_NAME,
    CallReply,
    CallRequest,
    CancelRequest,
    ErrorReply,
    FollowRequest,
    SharedProtocolError,
    SharedReply,
    UnfollowRequest,
    ValueReply,
    encode_message,
    is_same_user,
    read_body,
    request_decoder,
)
from peerd.shared.registry import SharedRegistry
from peerd.shared.shared_instance import SharedInstance
from peerd.shared.subscription import UpdateBacklog

MAX_CALLS: Final = 1_000
"""Of one process that may be under way; beyond it what it says is not read until some have ended."""
MAX_SUBSCRIPTIONS: Final = 10_000
"""Of one process."""


class SharedServer:
    """Serves what the agent shares to the other processes of its node."""

    def __init__(self, registry: SharedRegistry) -> None:
        self._registry = registry
        self._connections: set[asyncio.Task[None]] = set()

    async def run(self, run_directory: Path) -> None:
        """Listen until cancelled, in the place of whichever agent listened before.

        Raises:
            OSError: there can be no socket in the run directory.
        """
        listener = _listener(run_directory)
        loop = asyncio.get_running_loop()
        try:
            while True:
                end, _ = await loop.sock_accept(listener)
                connection = asyncio.create_task(self._accept_client(end), name="shared guest")
                self._connections.add(connection)
                connection.add_done_callback(self._connections.discard)
        finally:
            listener.close()
            await self.disconnect_all()

    async def disconnect_all(self) -> None:
        """End all connections: their processes come again, and begin anew."""
        connections = list(self._connections)
        for connection in connections:
            connection.cancel()
        if connections:
            await asyncio.wait(connections)

    async def _accept_client(self, end: socket.socket) -> None:
        if not is_same_user(end):
            end.close()
            return
        end.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=end)
        session = _ClientSession(self._registry, writer)
        try:
            await session.serve(reader)
        finally:
            session.close()
            writer.close()


class _ClientSession:
    """A process that uses what the agent shares."""

    def __init__(self, registry: SharedRegistry, writer: asyncio.StreamWriter) -> None:
        self._registry = registry
        self._writer = writer
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._follows: dict[int, asyncio.Task[None]] = {}
        self._following: dict[int, _SessionSubscription] = {}
        self._call_slots = asyncio.Semaphore(MAX_CALLS)
        self._answers: list[SharedReply] = []
        self._answer_ready = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader) -> None:
        """Take requests and give answers until it leaves."""
        writing = asyncio.create_task(self._write_answers(), name="shared answers")
        try:
            while (body := await read_body(reader)) is not None:
                await self._handle_request(request_decoder.decode(body))
        except (msgspec.DecodeError, SharedProtocolError, ConnectionError) as error:
            log_exception(error)
        finally:
            writing.cancel()

    def close(self) -> None:
        """End all that it has begun."""
        for task in (*self._calls.values(), *self._follows.values()):
            task.cancel()
        for following in list(self._following.values()):
            following.end()

    async def _handle_request(self, request: Any) -> None:
        match request:
            case CallRequest():
                await self._call_slots.acquire()
                self._calls[request.id] = asyncio.create_task(self._answer(request), name=f"call {request.method}")
            case CancelRequest():
                if request.id in self._calls:
                    self._calls[request.id].cancel()
            case FollowRequest():
                self._follows[request.id] = asyncio.create_task(self._start_following(request), name="follow")
            case UnfollowRequest():
                if task := self._follows.pop(request.id, None):
                    task.cancel()
                if following := self._following.pop(request.id, None):
                    following.end()

    async def _answer(self, call: CallRequest) -> None:
        try:
            timeout = min(max(call.timeout, 0.0), MAX_CALL_TIMEOUT)
            instance = await self._registry.instance(call.client, timeout)
            value = await instance.call(call.method, call.args, call.kwargs, timeout)
            encode_message(
                answer := CallReply(call.id, value), f"what {instance.kind.__name__}.{call.method}() returned"
            )
            self._queue_answer(answer)
        except asyncio.CancelledError:
            return
        except BaseException as error:  # noqa: BLE001 - the caller's, whatever it is
            self._queue_answer(_error_reply(call.id, error))
        finally:
            self._calls.pop(call.id, None)
            self._call_slots.release()

    async def _start_following(self, follow: FollowRequest) -> None:
        try:
            instance = await self._registry.instance(follow.client, FOLLOW_TIMEOUT)
            if len(self._following) >= MAX_SUBSCRIPTIONS:
                raise NotSerializable("one more subscription", f"a process may have {MAX_SUBSCRIPTIONS:,}")
            following = _SessionSubscription(self, instance, follow)
            self._following[follow.id] = following
            instance.follow(follow.key, following)
        except asyncio.CancelledError:
            return
        except BaseException as error:  # noqa: BLE001 - the follower's, whatever it is
            self._queue_answer(_error_reply(follow.id, error))
        finally:
            self._follows.pop(follow.id, None)

    # ---------------------------------------------------------------- answers

    def _queue_answer(self, answer: SharedReply) -> None:
        self._answers.append(answer)
        self.notify_answer_ready()

    def notify_answer_ready(self) -> None:
        """Wake the one who speaks."""
        self._answer_ready.set()

    def subscription_failed(self, number: int, error: Exception) -> None:
        """Tell that a subscription is over."""
        self._following.pop(number, None)
        self._queue_answer(_error_reply(number, error))

    async def _write_answers(self) -> None:
        """Write what there is to say as fast as it is read; meanwhile updates wait in backlogs that forget."""
        with contextlib.suppress(ConnectionError):
            while True:
                await self._answer_ready.wait()
                self._answer_ready.clear()
                answers, self._answers = self._answers, []
                for answer in answers:
                    self._writer.write(encode_message(answer, "an answer"))
                await self._writer.drain()
                for following in list(self._following.values()):
                    while (value := following.backlog.take()) is not None:
                        self._writer.write(encode_message(value, "a value"))
                        await self._writer.drain()


class _SessionSubscription:
    """One subscription of a guest."""

    def __init__(self, session: _ClientSession, instance: SharedInstance, follow: FollowRequest) -> None:
        self.backlog: UpdateBacklog[ValueReply] = UpdateBacklog()
        self._session = session
        self._instance = instance
        self._follow = follow

    def deliver(self, value: Any, number: int, generation: int) -> None:
        self.backlog.put(ValueReply(self._follow.id, value, number, generation))
        self._session.notify_answer_ready()

    def fail(self, error: Exception) -> None:
        self._session.subscription_failed(self._follow.id, error)

    def end(self) -> None:
        self._instance.unfollow(self._follow.key, self)


def _error_reply(number: int, error: BaseException) -> ErrorReply:
    match error:
        case NotShared():
            return ErrorReply(number, "not-shared", text=error.name)
        case SharedCallTimedOut():
            return ErrorReply(number, "timeout", text=str(error).rpartition(": ")[2])
        case SharedCallFailed():
            return ErrorReply(number, "raised", error.type_name, error.text)
        case NoSuchSharedMethod():
            return ErrorReply(number, "raised", "NoSuchSharedMethod", str(error))
        case _:
            return ErrorReply(number, "raised", type(error).__name__, exception_text(error))


def _listener(run_directory: Path) -> socket.socket:
    """A socket that only its owner may open. It replaces an earlier one in one step, so that nobody finds none."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        os.fchmod(listener.fileno(), 0o600)  # which its file will have when it is bound
        with short_socket_directory(run_directory) as folder:
            own = folder / f"{SOCKET_NAME}.{os.getpid()}"
            own.unlink(missing_ok=True)
            listener.bind(str(own))
            own.rename(folder / SOCKET_NAME)
        listener.listen(socket.SOMAXCONN)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener
