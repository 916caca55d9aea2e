"""The standalone server of `peerd-beanstalkd`, put together and run. Loading this module takes most of its start."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable
from contextlib import closing
from functools import cache
from typing import Final

from peerd.domain.errors import PeerdError
from peerd.gateway.standalone import JobFolder, StandaloneServer, open_folder, open_folder_in_memory
from peerd.gateway.standalone_start import PROGRAM, Flags, Listeners, ProgramExit
from peerd.runtime.observability.events import Event, EventBus, EventListener
from peerd.runtime.process import interpreter
from peerd.store.connection.database import Database

LEVELS: Final = ("warning", "info", "debug")  # of the log, by the number of -V
FAILED: Final = 1
STAGING: Final = frozenset({"stage scheduled", "stage failures"})
"""Chores that the engine of the gateway does itself, at the moment when a job is due."""


def serve(flags: Flags, listeners: Listeners, was_drained: Callable[[], bool]) -> int:
    """Serve until a signal stops the program; returns its exit status.

    Raises:
        ProgramExit: the folder or the file in it cannot be used.
    """
    events = EventBus(late_log(LEVELS[min(flags.verbosity, len(LEVELS) - 1)]))
    with closing(_open_folder(flags)) as folder:
        server = StandaloneServer(flags, folder, Maintenance(), events)
        interpreter.freeze_and_enable_gc()
        try:
            asyncio.run(_run(server, listeners, was_drained))
        except PeerdError as error:
            raise ProgramExit(FAILED, f"{PROGRAM}: {error}\n") from error
    return 0


def _open_folder(flags: Flags) -> JobFolder:
    if flags.folder is None:
        return open_folder_in_memory()
    folder = open_folder(flags.folder)
    if left := folder.foreign_logs():
        sys.stderr.write(f"{PROGRAM}: jobs that beanstalkd has left in {', '.join(left)} are not read\n")
    return folder


async def _run(server: StandaloneServer, listeners: Listeners, was_drained: Callable[[], bool]) -> None:
    loop = asyncio.get_running_loop()
    stop, drain = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGUSR1, drain.set)
    if was_drained():
        drain.set()
    await server.run(listeners.sockets, stop, drain)


def late_log(level: str) -> EventListener:
    """The log, which is loaded with its first line: most servers never write one, and loading it takes 80 ms."""

    @cache
    def load() -> EventListener:
        from peerd.runtime.observability import log_output  # noqa: PLC0415 - see above

        return log_output.LogEventListener(log_output.configure_logging(level, "console"))

    def log(event: Event) -> None:
        load()(event)

    return log


class Maintenance:
    """The chores of a manager, for the one process that a standalone server is. They are loaded in their first round:
    a client that waits for its first answer does not wait for them.
    """

    def __init__(self) -> None:
        self._next_runs: dict[str, float] = {}

    def __call__(self, database: Database) -> None:
        """Run what is due."""
        from peerd.config.settings import ManagerSettings  # noqa: PLC0415 - see above
        from peerd.manager.chores import CHORES  # noqa: PLC0415
        from peerd.store.due import read_due_maintenance  # noqa: PLC0415

        settings = ManagerSettings()
        due, now = database.read(read_due_maintenance), time.monotonic()
        for chore in CHORES:
            moment = chore.due(due, settings)
            is_due = moment is not None and moment <= due.now and now >= self._next_runs.get(chore.name, now)
            if is_due and chore.name not in STAGING:
                self._next_runs[chore.name] = now + chore.periods * settings.every
                database.run(chore.run, *chore.arguments(settings))
