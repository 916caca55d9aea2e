"""The watcher's process, for development: it asks for a reload when the project's code or configuration changes."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from watchfiles import awatch

from peerd.entrypoints.payload import events_of, settings_of
from peerd.runtime.observability.events import Events, FilesChanged
from peerd.runtime.process.link import Link
from peerd.runtime.process.service import Service

GATHER: Final = 200
"""Milliseconds in which changes are one change: an editor writes several files, git a hundred."""
NOT_OURS: Final = {"__pycache__", "node_modules", "venv"}
"""Folders that are not looked into; nor are those whose names begin with a dot."""


def watcher(payload: Mapping[str, Any]) -> Service:
    """The service of a node's watcher."""
    settings = settings_of(payload)
    watched = Watched(settings.project_directory, settings.file)
    return Watcher(watched, tuple(payload["kinds"]), events_of(payload, settings))


class Watched:
    """Which files matter.

    Args:
        folder: of the project.
        config: its peerd.toml, wherever it is; None if there is none.
    """

    def __init__(self, folder: Path, config: Path | None) -> None:
        self.config = config
        self.folders = {folder, config.parent if config else folder}
        self._folder = folder

    def __call__(self, _: object, path: str) -> bool:
        """Whether the change of a file matters: watchfiles asks it."""
        file = Path(path)
        return file == self.config or (file.suffix == ".py" and self._is_ours(file))

    def _is_ours(self, file: Path) -> bool:
        if not file.is_relative_to(self._folder):
            return False
        folders = file.relative_to(self._folder).parts[:-1]
        return not any(folder in NOT_OURS or folder.startswith(".") for folder in folders)


class Watcher:
    """Watches a project's folder.

    Args:
        watched: which files.
        kinds: those that run the project's code, to be replaced when it changes.
        events: what happens.
    """

    def __init__(self, watched: Watched, kinds: Collection[str], events: Events) -> None:
        self._watched = watched
        self._kinds = kinds
        self._events = events
        self._stopped = asyncio.Event()

    async def start(self, link: Link) -> Mapping[str, object]:
        """There is nothing that must be there first."""
        self._link = link
        return {}

    async def run(self) -> None:
        """Ask for a reload after each change."""
        watched = self._watched
        changed = awatch(*watched.folders, watch_filter=watched, debounce=GATHER, stop_event=self._stopped)
        async for changes in changed:
            files = {Path(path) for _, path in changes}
            self._events.emit(FilesChanged(files=tuple(sorted(file.name for file in files))))
            self._link.send({"type": "reload", **wish_after(files, watched.config, self._kinds)})

    async def receive(self, message: Mapping[str, object]) -> None:
        """Nothing that is told concerns it."""

    async def quiet(self) -> None:
        """It takes no work."""

    async def stop(self, grace: float) -> None:
        """Watch no more."""
        self._stopped.set()


def wish_after(files: Collection[Path], config: Path | None, kinds: Collection[str]) -> dict[str, object]:
    """What is to be reloaded: of changed code the kinds that run it, of a changed configuration what it is about.

    Example:
        >>> toml = Path("peerd.toml")
        >>> wish_after({Path("jobs.py")}, toml, ["video"])
        {'kinds': ['video'], 'config_only': False}
        >>> wish_after({toml}, toml, ["video"])
        {'kinds': None, 'config_only': True}
        >>> wish_after({toml, Path("jobs.py")}, toml, ["video"])
        {'kinds': None, 'config_only': False}
    """
    if config not in files:
        return {"kinds": list(kinds), "config_only": False}
    return {"kinds": None, "config_only": set(files) == {config}}
