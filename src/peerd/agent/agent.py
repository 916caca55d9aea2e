"""The object that the user's setup gets: the agent of this node."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from peerd.agent.components import ComponentFunction, ComponentSupervisor
from peerd.domain.errors import PeerdError
from peerd.runtime.process.process_context import ProcessContext
from peerd.runtime.process.uncaught_exceptions import guard_against_exit, log_exception
from peerd.schedules.registry import ScheduleRegistry
from peerd.shared.client import SharedClient, name_of
from peerd.shared.proxy import SharedClients
from peerd.shared.shared_instance import SharedInstance, SharedRegistry

C = TypeVar("C", bound=SharedClient)
UserFunction = Callable[..., object]


class CannotBeShared(PeerdError, TypeError):
    """`agent.share` was given something that cannot be shared."""

    def __init__(self, given: object, problem: str) -> None:
        name = given.__name__ if isinstance(given, type) else repr(given)
        super().__init__(f"{name} {problem}")


class Agent:
    """The agent of a node, as ``[agent] setup`` gets it: ``async def setup(agent: Agent) -> None``.

    Components and shared clients that the setup starts are each restarted alone when they fail. When the setup itself
    fails at the first start of the node, that start fails; in a later agent, what the setup had started is stopped and
    the setup is called again after a pause, while the agent does its own duties.

    Attributes:
        node: the node's name.
        slot: `agent`.
        kind: `agent`.
        messenger: messages to the other processes of the node.
        client: a `Client` on the database; in a coroutine use its ``client.aio``.
        options: ``[agent.options]`` of peerd.toml.
        log: the agent's log (structlog).
        shared: gives shared clients, as ``ctx.shared`` does.
        schedules: the node's: ``schedules.register(name, …)`` adds one, ``schedules.unregister(name)`` removes it.
    """

    def __init__(
        self,
        process: ProcessContext,
        components: ComponentSupervisor,
        shared_registry: SharedRegistry,
        *,
        log: Any,
        generation: int,
        schedules: ScheduleRegistry,
    ) -> None:
        self.node: str = process.node
        self.slot: str = process.slot
        self.kind: str = process.kind
        self.messenger = process.messenger
        self.options: Mapping[str, Any] = process.options
        self.log = log
        self.shared = SharedClients(shared_registry)
        self.schedules = schedules
        self._process = process
        self._components = components
        self._shared_registry = shared_registry
        self._generation = generation
        self._component_names: list[str] = []
        self._on_stop: list[UserFunction] = []

    @property
    def client(self) -> Any:
        """A `Client` on the database."""
        return self._process.client

    def component(self, name: str, run: ComponentFunction) -> None:
        """Start a long-lived component, such as a subscription to a middleware.

        When it raises, the exception is logged and sent as an alert, and it is restarted after a pause that grows; when
        it returns, it has ended for good.

        Args:
            name: shown to users; unique.
            run: an async function without arguments.

        Raises:
            ComponentNameTaken: there is a component of this name.
        """
        self._components.start(name, run)
        self._component_names.append(name)

    def share(self, kind: type[C], *args: Any, **kwargs: Any) -> C:
        """Open the one real instance of a shared client of this machine, as a component.

        Args:
            kind: the class, below `SharedClient`.
            args: for its constructor, which is called for each new connection.
            kwargs: likewise.

        Returns:
            the proxy that other processes get too, without the way over the socket: its calls, and `subscribe`.

        Raises:
            CannotBeShared: it is no such class, or is shared already.
        """
        given: object = kind
        if not (isinstance(given, type) and issubclass(given, SharedClient)):
            raise CannotBeShared(kind, "is not a class below peerd.SharedClient")
        if name_of(kind) in self._shared_registry.names:
            raise CannotBeShared(kind, "is shared already")
        instance = SharedInstance(kind, lambda: kind(*args, **kwargs), self._generation)
        self.component(f"shared {kind.__name__}", instance.run)
        self._shared_registry.add(instance)
        return self.shared(kind)

    def on_stop(self, function: Callable[[], object]) -> None:
        """Call a function, plain or async, when the agent stops; the latest first, after all components have ended."""
        self._on_stop.append(function)

    def run_in_background(self, work: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine beside everything else; awaited at the stop. Its exception is logged."""
        self._process.run_in_background(work)

    async def tear_down(self, within: float) -> None:
        """Stop what a setup has started, each piece within so many seconds. For the agent itself."""
        names, self._component_names = self._component_names, []
        await self._components.stop(names, within)
        while self._on_stop:
            try:
                await call_user_function(self._on_stop.pop())
            except Exception as error:  # noqa: BLE001 - the user's; the other functions are called too
                log_exception(error)


async def call_user_function(function: UserFunction, *args: object) -> None:
    """Call a plain or async function; SystemExit in it becomes an exception like others."""

    async def call() -> None:
        result = function(*args)
        if inspect.isawaitable(result):
            await result

    await guard_against_exit(call())
