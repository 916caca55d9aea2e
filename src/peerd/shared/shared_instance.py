"""The agent's side of shared clients: the one real instance of each class, and their registry.

An instance runs the client, its calls, and the keys that it follows at the source. The registry serves the agent's own
code, and `peerd.shared.server`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from peerd.runtime.concurrency import call_on_loop
from peerd.runtime.process.uncaught_exceptions import exception_text, guard_against_exit, log_exception
from peerd.shared import protocol
from peerd.shared.client import SharedClient, Subscription, convert_arguments, method_of, name_of

FOLLOW_TIMEOUT: Final = 30.0
CLOSE_TIMEOUT: Final = 5.0  # seconds


class SharedConnectionEnded(protocol.SharedError):
    """A shared client's `run` has returned."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name}.run() has returned: its connection is over")


@dataclass(slots=True)
class _Topic:
    """A key with subscribers. It is followed once at the source for all of them.

    Attributes:
        last: value, number, generation.
        was_followed: whether the source has accepted it once: a later refusal is a fault of the connection.
    """

    key: Any
    subscribers: list[Subscription] = field(default_factory=list)
    last: tuple[Any, int, int] | None = None
    was_followed: bool = False


@dataclass(eq=False)
class SharedInstance:
    """Holds the real client. `run` is a component, and opens a new object each time it is called.

    Args:
        generation: of the agent; then of the latest connection, greater than any of an earlier agent.
    """

    kind: type[SharedClient]
    make: Callable[[], SharedClient]
    generation: int

    def __post_init__(self) -> None:
        self.name = name_of(self.kind)
        self.generation = self.generation << 20
        # topics with subscribers, by the identity of their key
        self._topics: dict[bytes, _Topic] = {}
        # those that the present connection follows
        self._followed: dict[bytes, _Topic] = {}
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._client: SharedClient | None = None
        self._open = asyncio.Event()

    async def run(self) -> None:
        """Open the client and hold it until its connection ends."""
        client = self.make()
        self.generation += 1
        generation = self.generation
        client._emit = lambda key, value: self._emit(key, value, generation)  # noqa: SLF001 - its other half
        try:
            await client.open()
            self._client = client
            self._open.set()
            await self._run_client(client)
        finally:
            self._open.clear()
            self._client = None
            await _call_user(client.close, timeout=CLOSE_TIMEOUT)

    async def call(self, method: str, args: Sequence[Any], kwargs: Mapping[str, Any], within: float) -> Any:
        """Call a method of the client, as soon as it is open.

        Raises:
            NoSuchSharedMethod: it has no such method.
            SharedCallFailed: the method raised an exception, or does not take these arguments.
            SharedCallTimedOut: it was not open, or did not return, in time.
        """
        function = method_of(self.kind, method)
        what = f"{self.kind.__name__}.{method}()"
        scope = asyncio.timeout(within)
        try:
            async with scope:
                await self._open.wait()
                positional, named = convert_arguments(function, args, kwargs)
                return await getattr(self._client, method)(*positional, **named)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise protocol.SharedCallFailed(what, "CancelledError", "it was cancelled inside the client") from None
        except BaseException as error:
            if scope.expired():
                state = "the client is busy" if self._open.is_set() else "the client is not connected"
                raise protocol.SharedCallTimedOut(what, within, state) from error
            if isinstance(error, GeneratorExit):
                raise
            raise protocol.SharedCallFailed(what, type(error).__name__, exception_text(error)) from error

    def follow(self, key: Any, subscriber: Subscription) -> None:
        """Give a subscriber the values of a key from now on, the last one at once.

        Raises:
            NotSerializable: it cannot be a key.
        """
        topic = self._topics.setdefault(protocol.key_identity(key), _Topic(key))
        topic.subscribers.append(subscriber)
        if topic.last is not None:
            subscriber.deliver(*topic.last)
        self._changed.set()

    def unfollow(self, key: Any, subscriber: Subscription) -> None:
        """Give it no more; the key is forgotten with its last subscriber."""
        topic = self._topics.get(protocol.key_identity(key))
        if topic is not None and subscriber in topic.subscribers:
            topic.subscribers.remove(subscriber)
            if not topic.subscribers:
                del self._topics[protocol.key_identity(key)]
        self._changed.set()

    def end(self, error: Exception) -> None:
        for identity in list(self._topics):
            self._fail(identity, error)

    def _fail(self, identity: bytes, error: Exception) -> None:
        for subscriber in self._topics.pop(identity).subscribers:
            subscriber.fail(error)

    # ---------------------------------------------------------------- the source

    async def _run_client(self, client: SharedClient) -> None:
        """Run the client, and follow the topics at the source, while the connection lasts."""
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
            for identity, topic in list(self._followed.items()):
                if self._topics.get(identity) is not topic:
                    del self._followed[identity]
                    await _call_user(client.unfollow, topic.key, timeout=FOLLOW_TIMEOUT)
            for identity, topic in list(self._topics.items()):
                if identity not in self._followed and identity in self._topics:
                    await self._follow_at_source(client, identity, topic)
            await self._changed.wait()

    async def _follow_at_source(self, client: SharedClient, identity: bytes, topic: _Topic) -> None:
        self._followed[identity] = topic
        try:
            async with asyncio.timeout(FOLLOW_TIMEOUT):
                await guard_against_exit(client.follow(topic.key))
        except Exception as error:
            if topic.was_followed:
                raise  # the new connection is at fault, and is opened anew
            del self._followed[identity]
            if self._topics.get(identity) is topic:
                what = f"{self.kind.__name__}.follow({topic.key!r})"
                self._fail(identity, protocol.SharedCallFailed(what, type(error).__name__, exception_text(error)))
        else:
            topic.was_followed = True

    def _emit(self, key: Any, value: Any, generation: int) -> None:
        protocol.encode_value([key, value], f"what {self.kind.__name__} emits")
        if threading.get_ident() == self._loop_thread:
            self._deliver(key, value, generation)
        else:
            call_on_loop(self._loop, self._deliver, key, value, generation)

    def _deliver(self, key: Any, value: Any, generation: int) -> None:
        topic = self._topics.get(protocol.key_identity(key))
        if topic is None or generation != self.generation:  # an object that was replaced may still emit
            return
        number = topic.last[1] + 1 if topic.last and topic.last[2] == generation else 1
        topic.last = (value, number, generation)
        for subscriber in list(topic.subscribers):
            subscriber.deliver(*topic.last)


async def _call_user(method: Callable[..., Any], *args: Any, timeout: float) -> None:  # noqa: ASYNC109
    """Call a method that ends something, whose failure is only logged."""
    try:
        async with asyncio.timeout(timeout):
            await guard_against_exit(method(*args))
    except Exception as error:  # noqa: BLE001 - the user's
        log_exception(error)


class SharedRegistry:
    """The shared instances of an agent; the backend of proxies in the agent itself."""

    def __init__(self) -> None:
        self._instances: dict[str, SharedInstance] = {}
        self._is_complete = False
        self._changed = asyncio.Event()

    @property
    def names(self) -> list[str]:
        return list(self._instances)

    def add(self, instance: SharedInstance) -> None:
        self._instances[instance.name] = instance
        self._wake_waiters()

    def mark_complete(self) -> None:
        """The setup has ended: a request for another class fails from now on, instead of waiting for it."""
        self._is_complete = True
        self._wake_waiters()

    def clear(self) -> None:
        """Forget all instances, before a new call of the setup; their subscriptions fail."""
        self._is_complete = False
        instances, self._instances = list(self._instances.values()), {}
        for instance in instances:
            instance.end(protocol.AgentLost(instance.kind.__name__))

    async def instance(self, name: str, within: float) -> SharedInstance:
        """The instance of a class; until the setup has ended, it may still be shared.

        Raises:
            NotShared: there is none of this name.
            SharedCallTimedOut: the setup has neither shared it nor ended in time.
        """
        try:
            async with asyncio.timeout(within):
                while not (self._is_complete or name in self._instances):
                    await self._changed.wait()
        except TimeoutError:
            raise protocol.SharedCallTimedOut(name, within, "the agent's setup has not shared it yet") from None
        return self._get(name)

    async def call(
        self, kind: type[SharedClient], method: str, args: Sequence[Any], kwargs: Mapping[str, Any], within: float
    ) -> Any:
        method_of(kind, method)
        instance = await self.instance(name_of(kind), within)
        return await instance.call(method, args, kwargs, within)

    def subscribe(self, kind: type[SharedClient], key: Any) -> Subscription:
        """Follow a key.

        Raises:
            NotShared: the class is not shared.
        """
        instance = self._get(name_of(kind))
        subscription = Subscription(key, lambda ended: instance.unfollow(key, ended))
        instance.follow(key, subscription)
        return subscription

    def _get(self, name: str) -> SharedInstance:
        if name not in self._instances:
            raise protocol.NotShared(name)
        return self._instances[name]

    def _wake_waiters(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
