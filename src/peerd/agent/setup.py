"""The user's setup: the object that it gets, and the subsystem that runs it.

What the setup shares is served to the other processes of the node.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import structlog

from peerd.agent.components import ComponentFunction, ComponentSupervisor, Subsystem
from peerd.domain.errors import PeerdError
from peerd.runtime.process.uncaught_exceptions import (
    describe_exception,
    guard_against_exit,
    guard_tasks_against_exit,
    log_exception,
)
from peerd.schedules.registry import ScheduleRegistry
from peerd.shared.client import SharedClient, SharedClients, name_of
from peerd.shared.server import SharedServer
from peerd.shared.shared_instance import SharedInstance, SharedRegistry
from peerd.shell import ProcessShell

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
        shell: ProcessShell,
        components: ComponentSupervisor,
        shared_registry: SharedRegistry,
        schedules: ScheduleRegistry,
    ) -> None:
        process = shell.process
        self.node: str = process.node
        self.slot: str = process.slot
        self.kind: str = process.kind
        self.messenger = process.messenger
        self.options: Mapping[str, Any] = process.options
        self.log: Any = structlog.get_logger()
        self.shared = SharedClients(shared_registry)
        self.schedules = schedules
        self._process = process
        self._components = components
        self._shared_registry = shared_registry
        self._generation = shell.link.generation
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


# ---------------------------------------------------------------- the subsystem


TEAR_DOWN_WITHIN: Final = 5.0
"""Seconds that each piece of a failed setup has to end before the setup is called again."""
MIN_STOP_TIME: Final = 1.0
"""Seconds that each piece of user code has to end, however short the grace is."""

SetupFunction = Callable[[Agent], object]


class SetupFailed(PeerdError):
    """The function that [agent] setup names has raised an exception, or does not exist."""

    def __init__(self, entry: str, problem: str) -> None:
        super().__init__(f"[agent] setup {entry}: {problem}")


@dataclass(eq=False)
class SetupRunner(Subsystem):
    """Runs the setup: before the node starts, and in later agents as a component.

    Args:
        entry: what [agent] setup names; None without it.
        find: imports the function that an entry names; called in a thread.
        schedules: the node's; the setup may add to it.
    """

    entry: str | None
    find: Callable[[str], SetupFunction]
    run_directory: Path
    schedules: ScheduleRegistry

    def __post_init__(self) -> None:
        self._agent: Agent | None = None

    async def start(self, shell: ProcessShell, components: ComponentSupervisor) -> None:
        """Open the socket of the shared clients, and run the setup.

        Raises:
            SetupFailed: at the first start of the node.
        """
        guard_tasks_against_exit(asyncio.get_running_loop())
        self._shell = shell
        self._components = components
        self._shared_registry = SharedRegistry()
        self._server = SharedServer(self._shared_registry)
        shell.process.find_shared = SharedClients(self._shared_registry)
        shell.process.messenger.on("components", lambda _: components.to_json())
        components.start("shared clients", lambda: self._server.run(self.run_directory))
        if self.entry is None:
            self._shared_registry.mark_complete()
        elif shell.link.is_replacement:
            components.start("setup", self._run_setup)
        else:
            await self._run_setup()

    async def stop(self, grace: float) -> None:
        """Stop what the setup has started, and what runs in the background."""
        await self._components.stop(["setup"], within=MIN_STOP_TIME)
        if self._agent is not None:
            await self._agent.tear_down(max(grace, MIN_STOP_TIME))
        await self._shell.process.finish(grace)
        await self._components.stop(["shared clients"], within=MIN_STOP_TIME)

    async def _run_setup(self) -> None:
        """Call the setup, after undoing an earlier call that failed."""
        await self._tear_down()
        assert self.entry is not None
        self._agent = Agent(self._shell, self._components, self._shared_registry, self.schedules)
        try:
            setup = await asyncio.to_thread(self.find, self.entry)
        except Exception as error:
            raise SetupFailed(self.entry, str(error)) from error
        try:
            await call_user_function(setup, self._agent)
        except Exception as error:
            await self._tear_down()
            raise SetupFailed(self.entry, describe_exception(error)) from error
        self._shared_registry.mark_complete()

    async def _tear_down(self) -> None:
        if self._agent is not None:
            agent, self._agent = self._agent, None
            await agent.tear_down(TEAR_DOWN_WITHIN)
            self._shared_registry.clear()
            await self._server.disconnect_all()
