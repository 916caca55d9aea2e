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

from peerd.runtime.process.uncaught_exceptions import show, text_of
from peerd.runtime.unix_socket_path import short_path
from peerd.shared.errors import CannotBeCarried, NotCallable, NotShared, SharedCallFailed, SharedCallTimedOut
from peerd.shared.protocol import (
    FOLLOW_WITHIN,
    LONGEST_TIMEOUT,
    SOCKET,
    Answer,
    Call,
    Cancel,
    Failed,
    Follow,
    Garbled,
    Returned,
    Unfollow,
    Value,
    is_of_our_user,
    pack,
    read,
    requests,
)
from peerd.shared.registry import Sharing
from peerd.shared.shared_instance import Holder
from peerd.shared.subscription import Backlog

CALLS: Final = 1_000
"""Of one process that may be under way; beyond it what it says is not read until some have ended."""
SUBSCRIPTIONS: Final = 10_000
"""Of one process."""


class Server:
    """Serves what the agent shares to the other processes of its node."""

    def __init__(self, sharing: Sharing) -> None:
        self._sharing = sharing
        self._visits: set[asyncio.Task[None]] = set()

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
                visit = asyncio.create_task(self._receive_guest(end), name="shared guest")
                self._visits.add(visit)
                visit.add_done_callback(self._visits.discard)
        finally:
            listener.close()
            await self.dismiss()

    async def dismiss(self) -> None:
        """End all connections: their processes come again, and begin anew."""
        visits = list(self._visits)
        for visit in visits:
            visit.cancel()
        if visits:
            await asyncio.wait(visits)

    async def _receive_guest(self, end: socket.socket) -> None:
        if not is_of_our_user(end):
            end.close()
            return
        end.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=end)
        guest = _Guest(self._sharing, writer)
        try:
            await guest.serve(reader)
        finally:
            guest.leave()
            writer.close()


class _Guest:
    """A process that uses what the agent shares."""

    def __init__(self, sharing: Sharing, writer: asyncio.StreamWriter) -> None:
        self._sharing = sharing
        self._writer = writer
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._follows: dict[int, asyncio.Task[None]] = {}
        self._following: dict[int, _Following] = {}
        self._room = asyncio.Semaphore(CALLS)
        self._answers: list[Answer] = []
        self._something_to_say = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader) -> None:
        """Take requests and give answers until it leaves."""
        speaking = asyncio.create_task(self._speak(), name="shared answers")
        try:
            while (body := await read(reader)) is not None:
                await self._take(requests.decode(body))
        except (msgspec.DecodeError, Garbled, ConnectionError) as error:
            show(error)
        finally:
            speaking.cancel()

    def leave(self) -> None:
        """End all that it has begun."""
        for task in (*self._calls.values(), *self._follows.values()):
            task.cancel()
        for following in list(self._following.values()):
            following.end()

    async def _take(self, request: Any) -> None:
        match request:
            case Call():
                await self._room.acquire()
                self._calls[request.id] = asyncio.create_task(self._answer(request), name=f"call {request.method}")
            case Cancel():
                if request.id in self._calls:
                    self._calls[request.id].cancel()
            case Follow():
                self._follows[request.id] = asyncio.create_task(self._begin_to_follow(request), name="follow")
            case Unfollow():
                if task := self._follows.pop(request.id, None):
                    task.cancel()
                if following := self._following.pop(request.id, None):
                    following.end()

    async def _answer(self, call: Call) -> None:
        try:
            timeout = min(max(call.timeout, 0.0), LONGEST_TIMEOUT)
            holder = await self._sharing.holder(call.client, timeout)
            value = await holder.call(call.method, call.args, call.kwargs, timeout)
            pack(answer := Returned(call.id, value), f"what {holder.kind.__name__}.{call.method}() returned")
            self._say(answer)
        except asyncio.CancelledError:
            return
        except BaseException as error:  # noqa: BLE001 - the caller's, whatever it is
            self._say(_failed(call.id, error))
        finally:
            self._calls.pop(call.id, None)
            self._room.release()

    async def _begin_to_follow(self, follow: Follow) -> None:
        try:
            holder = await self._sharing.holder(follow.client, FOLLOW_WITHIN)
            if len(self._following) >= SUBSCRIPTIONS:
                raise CannotBeCarried("one more subscription", f"a process may have {SUBSCRIPTIONS:,}")
            following = _Following(self, holder, follow)
            self._following[follow.id] = following
            holder.follow(follow.key, following)
        except asyncio.CancelledError:
            return
        except BaseException as error:  # noqa: BLE001 - the follower's, whatever it is
            self._say(_failed(follow.id, error))
        finally:
            self._follows.pop(follow.id, None)

    # ---------------------------------------------------------------- answers

    def _say(self, answer: Answer) -> None:
        self._answers.append(answer)
        self.something_to_say()

    def something_to_say(self) -> None:
        """Wake the one who speaks."""
        self._something_to_say.set()

    def follower_failed(self, number: int, error: Exception) -> None:
        """Tell that a subscription is over."""
        self._following.pop(number, None)
        self._say(_failed(number, error))

    async def _speak(self) -> None:
        """Write what there is to say as fast as it is read; meanwhile updates wait in backlogs that forget."""
        with contextlib.suppress(ConnectionError):
            while True:
                await self._something_to_say.wait()
                self._something_to_say.clear()
                answers, self._answers = self._answers, []
                for answer in answers:
                    self._writer.write(pack(answer, "an answer"))
                await self._writer.drain()
                for following in list(self._following.values()):
                    while (value := following.backlog.take()) is not None:
                        self._writer.write(pack(value, "a value"))
                        await self._writer.drain()


class _Following:
    """One subscription of a guest."""

    def __init__(self, guest: _Guest, holder: Holder, follow: Follow) -> None:
        self.backlog: Backlog[Value] = Backlog()
        self._guest = guest
        self._holder = holder
        self._follow = follow

    def deliver(self, value: Any, number: int, generation: int) -> None:
        self.backlog.put(Value(self._follow.id, value, number, generation))
        self._guest.something_to_say()

    def fail(self, error: Exception) -> None:
        self._guest.follower_failed(self._follow.id, error)

    def end(self) -> None:
        self._holder.unfollow(self._follow.key, self)


def _failed(number: int, error: BaseException) -> Failed:
    match error:
        case NotShared():
            return Failed(number, "not-shared", text=error.name)
        case SharedCallTimedOut():
            return Failed(number, "timeout", text=str(error).rpartition(": ")[2])
        case SharedCallFailed():
            return Failed(number, "raised", error.type_name, error.text)
        case NotCallable():
            return Failed(number, "raised", "NotCallable", str(error))
        case _:
            return Failed(number, "raised", type(error).__name__, text_of(error))


def _listener(run_directory: Path) -> socket.socket:
    """A socket that only its owner may open. It replaces an earlier one in one step, so that nobody finds none."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        os.fchmod(listener.fileno(), 0o600)  # which its file will have when it is bound
        with short_path(run_directory) as folder:
            own = folder / f"{SOCKET}.{os.getpid()}"
            own.unlink(missing_ok=True)
            listener.bind(str(own))
            own.rename(folder / SOCKET)
        listener.listen(socket.SOMAXCONN)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener
