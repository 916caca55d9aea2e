"""The part of the agent that runs the user's setup, and shares what it shares."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from peerd.agent.agent import Agent
from peerd.agent.components import ComponentSupervisor
from peerd.domain.errors import PeerdError
from peerd.runtime.observability.events import EventBus
from peerd.runtime.process.link import Link
from peerd.runtime.process.process_context import ProcessContext
from peerd.runtime.process.uncaught_exceptions import describe_exception, guard_against_exit, guard_tasks_against_exit
from peerd.schedules.registry import ScheduleRegistry
from peerd.shared.proxy import SharedClients
from peerd.shared.registry import SharedRegistry
from peerd.shared.server import SharedServer

TEAR_DOWN_WITHIN: Final = 5.0
"""Seconds that each piece of a setup that failed has to end before the setup is tried again."""
MIN_STOP_TIME: Final = 1.0
"""Seconds that each piece of the user's has to end, however much somebody hurries."""

SetupFunction = Callable[[Agent], object]


class SetupFailed(PeerdError):
    """The function that [agent] setup names has raised an exception, or is not there."""

    def __init__(self, entry: str, problem: str) -> None:
        super().__init__(f"[agent] setup {entry}: {problem}")


class SetupRunner:
    """Runs the user's setup: before the node starts, and in the agents after the first as a component of theirs.

    Args:
        entry: what [agent] setup names; None when there is no such code.
        find: gives the function that an entry names; called in a thread, for it imports.
        events: what happens.
        options: [agent.options].
        client: a `Client` on the database.
        run_directory: the node's.
        log: the agent's.
        schedules: the node's, for the setup to add to.
    """

    def __init__(
        self,
        entry: str | None,
        find: Callable[[str], SetupFunction],
        events: EventBus,
        *,
        options: Mapping[str, Any],
        client: Any,
        run_directory: Path,
        log: Any,
        schedules: ScheduleRegistry,
    ) -> None:
        self._entry = entry
        self._find = find
        self._events = events
        self._options = options
        self._client = client
        self._run_directory = run_directory
        self._log = log
        self._schedules = schedules
        self._agent: Agent | None = None
        self._process: ProcessContext | None = None

    @property
    def process(self) -> ProcessContext:
        """The agent's process, from the start on."""
        assert self._process is not None
        return self._process

    async def start(self, link: Link, components: ComponentSupervisor) -> None:
        """Listen for the other processes of the node, and run the setup.

        Raises:
            SetupFailed: at the first start of the node.
        """
        guard_tasks_against_exit(asyncio.get_running_loop())
        self._link = link
        self._components = components
        self._sharing = SharedRegistry()
        self._server = SharedServer(self._sharing)
        self._process = ProcessContext(link, self._events, options=self._options, client=self._client)
        self._process.find_shared = SharedClients(self._sharing)
        self._process.messenger.on("components", lambda _: components.to_json())
        components.start("sharing", lambda: self._server.run(self._run_directory))
        if self._entry is None:
            self._sharing.mark_complete()
        elif link.is_replacement:
            components.start("setup", self._run_setup)
        else:
            await self._run_setup()

    async def request(self, pid: int, action: str, within: float) -> Any:
        """Ask a process of the node; see `Messenger.request`."""
        assert self._process is not None
        return await self._process.messenger.request(pid, action, timeout=within)

    def receive(self, message: Mapping[str, Any]) -> None:
        """Let the messenger look at a message of the master."""
        if self._process is not None:
            self._process.messenger.receive(message)

    async def stop(self, grace: float) -> None:
        """End what the setup has begun, and what runs in the background."""
        await self._components.stop(["setup"], within=MIN_STOP_TIME)
        if self._agent is not None:
            await self._agent.tear_down(max(grace, MIN_STOP_TIME))
        if self._process is not None:
            await self._process.finish(grace)
        await self._components.stop(["sharing"], within=MIN_STOP_TIME)

    async def _run_setup(self) -> None:
        """Call the setup, with nothing left of an earlier call that failed."""
        await self._tear_down()
        assert self._entry is not None
        assert self._process is not None
        self._agent = Agent(
            self._process,
            self._components,
            self._sharing,
            log=self._log,
            generation=self._link.generation,
            schedules=self._schedules,
        )
        try:
            setup = await asyncio.to_thread(self._find, self._entry)
        except Exception as error:
            raise SetupFailed(self._entry, str(error)) from error
        try:
            await guard_against_exit(_call_setup(setup, self._agent))
        except Exception as error:
            await self._tear_down()
            raise SetupFailed(self._entry, describe_exception(error)) from error
        self._sharing.mark_complete()

    async def _tear_down(self) -> None:
        if self._agent is not None:
            agent, self._agent = self._agent, None
            await agent.tear_down(TEAR_DOWN_WITHIN)
            self._sharing.clear()
            await self._server.disconnect_all()


async def _call_setup(setup: SetupFunction, agent: Agent) -> None:
    result = setup(agent)
    if inspect.isawaitable(result):
        await result
