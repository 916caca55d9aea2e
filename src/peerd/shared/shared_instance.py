"""The one real instance of a shared client: its life, the calls of it, and the keys that it follows at the source."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from peerd.runtime.process.uncaught_exceptions import exception_text, guard_against_exit, log_exception
from peerd.shared.client import SharedClient
from peerd.shared.errors import SharedCallFailed, SharedCallTimedOut, SharedError
from peerd.shared.protocol import encode_value
from peerd.shared.rpc_methods import method_of, name_of
from peerd.shared.topics import Topic, Topics, TopicSubscriber

FOLLOW_TIMEOUT: Final = 30.0
CLOSE_TIMEOUT: Final = 5.0
"""Seconds."""


class SharedConnectionEnded(SharedError):
    """A shared client's `run` has returned."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name}.run() has returned: its connection is over")


class SharedInstance:
    """Holds the real client. `run` is the component's work: it opens a fresh object each time it is called.

    Args:
        kind: the class.
        make: makes an object of it.
        generation: of the agent, by which the generations of its connections begin.
    """

    def __init__(self, kind: type[SharedClient], make: Callable[[], SharedClient], generation: int) -> None:
        self.kind = kind
        self.name = name_of(kind)
        self._make = make
        self._generation = generation << 20
        self._topics = Topics()
        self._followed: dict[bytes, Topic] = {}
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._client: SharedClient | None = None
        self._open = asyncio.Event()

    async def run(self) -> None:
        """Open the client, let it follow what is followed here, and hold it until its connection is over."""
        client = self._make()
        self._generation += 1
        generation = self._generation
        client._emit = lambda key, value: self._emit(key, value, generation)  # noqa: SLF001 - its other half
        try:
            await client.open()
            self._client = client
            self._open.set()
            await self._run_client(client)
        finally:
            self._open.clear()
            self._client = None
            await _close(client)

    async def call(self, method: str, args: Sequence[Any], kwargs: Mapping[str, Any], within: float) -> Any:
        """Call a method of the client, as soon as it is open.

        Raises:
            NoSuchSharedMethod: it has no such method.
            SharedCallFailed: the method raised an exception, or does not take these arguments.
            SharedCallTimedOut: it was not open, or did not return, in time.
        """
        found = method_of(self.kind, method)
        what = f"{self.kind.__name__}.{method}()"
        scope = asyncio.timeout(within)
        try:
            async with scope:
                await self._open.wait()
                positional, named = found.arguments(args, kwargs)
                return await getattr(self._client, method)(*positional, **named)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise SharedCallFailed(what, "CancelledError", "it was cancelled inside the client") from None
        except BaseException as error:
            if scope.expired():
                state = "the client is busy" if self._open.is_set() else "the client is not connected"
                raise SharedCallTimedOut(what, within, state) from error
            if isinstance(error, GeneratorExit):
                raise
            raise SharedCallFailed(what, type(error).__name__, exception_text(error)) from error

    def follow(self, key: Any, follower: TopicSubscriber) -> None:
        """Give a follower the values of a key from now on, the last one at once.

        Raises:
            NotSerializable: it is no key.
        """
        self._topics.add(key, follower)
        self._changed.set()

    def unfollow(self, key: Any, follower: TopicSubscriber) -> None:
        """Give it no more."""
        self._topics.remove(key, follower)
        self._changed.set()

    def end(self, error: Exception) -> None:
        """Tell all that follow that nothing more will come."""
        self._topics.fail_all(error)

    # ---------------------------------------------------------------- the source

    async def _run_client(self, client: SharedClient) -> None:
        """Keep what is followed at the source equal to what is followed here, while the connection lasts."""
        self._followed.clear()
        running = asyncio.create_task(guard_against_exit(client.run()), name=f"run {self.name}")
        following = asyncio.create_task(self._sync_followed(client), name=f"follow {self.name}")
        try:
            done, _ = await asyncio.wait((running, following), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            raise SharedConnectionEnded(self.kind.__name__)
        finally:
            for task in (running, following):
                task.cancel()
            await asyncio.wait((running, following), timeout=CLOSE_TIMEOUT)

    async def _sync_followed(self, client: SharedClient) -> None:
        while True:
            self._changed.clear()
            for identity in [one for one in self._followed if self._topics.wanted.get(one) is not self._followed[one]]:
                await self._unfollow(client, self._followed.pop(identity))
            for identity, topic in list(self._topics.wanted.items()):
                if identity not in self._followed and identity in self._topics.wanted:
                    await self._follow(client, identity, topic)
            await self._changed.wait()

    async def _follow(self, client: SharedClient, identity: bytes, topic: Topic) -> None:
        self._followed[identity] = topic
        try:
            async with asyncio.timeout(FOLLOW_TIMEOUT):
                await guard_against_exit(client.follow(topic.key))
        except Exception as error:
            if topic.was_followed:
                raise  # it was followed before: the new connection is at fault, and is begun anew
            del self._followed[identity]
            if self._topics.wanted.get(identity) is topic:
                what = f"{self.kind.__name__}.follow({topic.key!r})"
                self._topics.fail(identity, SharedCallFailed(what, type(error).__name__, exception_text(error)))
        else:
            topic.was_followed = True

    async def _unfollow(self, client: SharedClient, topic: Topic) -> None:
        try:
            async with asyncio.timeout(FOLLOW_TIMEOUT):
                await guard_against_exit(client.unfollow(topic.key))
        except Exception as error:  # noqa: BLE001 - nobody waits for this key any more
            log_exception(error)

    def _emit(self, key: Any, value: Any, generation: int) -> None:
        encode_value([key, value], f"what {self.kind.__name__} emits")
        if _is_running(self._loop):
            self._apply_emit(key, value, generation)
        else:
            with suppress(RuntimeError):  # the loop is closed: nobody follows any more
                self._loop.call_soon_threadsafe(self._apply_emit, key, value, generation)

    def _apply_emit(self, key: Any, value: Any, generation: int) -> None:
        if generation == self._generation:  # else an object that was replaced is still speaking
            self._topics.emit(key, value, generation)


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


async def _close(client: SharedClient) -> None:
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT):
            await guard_against_exit(client.close())
    except Exception as error:  # noqa: BLE001 - it is given up in any case
        log_exception(error)
