"""The watcher's process, for development: requests a reload when the project's code or configuration changes."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from watchfiles import awatch

from peerd.entrypoints.process_parts import create_events, decode_settings
from peerd.runtime.observability.events import EventBus
from peerd.runtime.observability.log_messages import files_changed
from peerd.runtime.process.link import Link

DEBOUNCE_MS: Final = 200
"""Milliseconds within which changes count as one: an editor writes several files, git a hundred."""
IGNORED_FOLDERS: Final = {"__pycache__", "node_modules", "venv"}
"""Folders that are ignored, as are those whose names begin with a dot."""


def watcher(payload: Mapping[str, Any]) -> FileWatcher:
    settings = decode_settings(payload)
    kinds, events = tuple(payload["kinds"]), create_events(payload, settings)
    return FileWatcher(settings.project_directory, settings.file, kinds, events)


class FileWatcher:
    """Watches a project's folder, and requests a reload of `kinds`, which run its code, when that changes.

    What is watched are the modules of the project and its configuration.
    """

    def __init__(self, folder: Path, config: Path | None, kinds: Collection[str], events: EventBus) -> None:
        self.folders = {folder, config.parent if config else folder}
        self._project_folder = folder
        self._config = config
        self._kinds = kinds
        self._events = events
        self._stopped = asyncio.Event()

    def is_watched(self, _: object, path: str) -> bool:
        """Whether a change of a file matters; a filter of watchfiles."""
        file = Path(path)
        return file == self._config or (file.suffix == ".py" and self._is_project_file(file))

    def _is_project_file(self, file: Path) -> bool:
        if not file.is_relative_to(self._project_folder):
            return False
        folders = file.relative_to(self._project_folder).parts[:-1]
        return not any(folder in IGNORED_FOLDERS or folder.startswith(".") for folder in folders)

    async def start(self, link: Link) -> Mapping[str, object]:
        self._link = link
        return {}

    async def run(self) -> None:
        changed = awatch(*self.folders, watch_filter=self.is_watched, debounce=DEBOUNCE_MS, stop_event=self._stopped)
        async for changes in changed:
            files = {Path(path) for _, path in changes}
            self._events.emit(files_changed(tuple(sorted(file.name for file in files))))
            self._link.send({"type": "reload", **reload_request_for(files, self._config, self._kinds)})

    async def receive(self, message: Mapping[str, object]) -> None:
        """Ignore messages of the master."""

    async def stop(self, grace: float) -> None:
        self._stopped.set()


def reload_request_for(files: Collection[Path], config: Path | None, kinds: Collection[str]) -> dict[str, object]:
    """Return the request for changed files: code reloads the kinds that run it, the configuration what it changes.

    Example:
        >>> toml = Path("peerd.toml")
        >>> reload_request_for({Path("jobs.py")}, toml, ["video"])
        {'kinds': ['video'], 'config_only': False}
        >>> reload_request_for({toml}, toml, ["video"])
        {'kinds': None, 'config_only': True}
        >>> reload_request_for({toml, Path("jobs.py")}, toml, ["video"])
        {'kinds': None, 'config_only': False}
    """
    if config not in files:
        return {"kinds": list(kinds), "config_only": False}
    return {"kinds": None, "config_only": set(files) == {config}}
