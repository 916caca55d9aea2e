"""Runs the user's setup, and serves the clients that it shares to the other processes of the node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from peerd.agent.agent import Agent, call_user_function
from peerd.agent.components import ComponentSupervisor, Subsystem
from peerd.domain.errors import PeerdError
from peerd.runtime.process.uncaught_exceptions import describe_exception, guard_tasks_against_exit
from peerd.schedules.registry import ScheduleRegistry
from peerd.shared.proxy import SharedClients
from peerd.shared.server import SharedServer
from peerd.shared.shared_instance import SharedRegistry
from peerd.shell.process_shell import ProcessShell

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
    """Runs the setup: before the node starts, and in later agents as a component."""

    entry: str | None
    """What [agent] setup names; None without it."""
    find: Callable[[str], SetupFunction]
    """Imports the function that an entry names; called in a thread."""
    run_directory: Path
    log: Any
    schedules: ScheduleRegistry
    """The node's; the setup may add to it."""

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
        self._agent = Agent(
            self._shell.process,
            self._components,
            self._shared_registry,
            log=self.log,
            generation=self._shell.link.generation,
            schedules=self.schedules,
        )
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
