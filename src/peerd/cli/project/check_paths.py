"""Whether a node can write where its configuration has it write; tried, as a mode says nothing of a read-only disk."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from peerd.cli.project.check_report import Findings
from peerd.config import Settings
from peerd.config.address import is_sqlite
from peerd.store.connection.engines import normalised

WHERE_TO = "name a place that the user of the node may write to"


def examine_places(settings: Settings, found: Findings) -> None:
    """The run directory, the log file and the embedded database."""
    run_directory = settings.node.run_directory
    if problem := _problem_with_folder(run_directory):
        found.wrong(("node", "run_directory"), problem, WHERE_TO)
    if settings.logging.file is not None and (problem := _problem_with_file(settings.logging.file)):
        found.wrong(("logging", "file"), problem, WHERE_TO)
    if is_sqlite(settings.database.url) and not found.are_about("database"):
        file = Path(normalised(settings.database.url).database or "")
        if problem := _problem_with_file(file, makes_folders=False):
            found.wrong(("database", "url"), problem, WHERE_TO)


def _problem_with_file(path: Path, *, makes_folders: bool = True) -> str:
    """Why a file cannot be written, or made; empty where it can."""
    try:
        if path.exists():
            # Not opened: a process that closes a file loses its locks on it, also those of its SQLite connections.
            writable = path.is_file() and os.access(path, os.W_OK, effective_ids=True)
            return "" if writable else f"{path} cannot be written"
    except OSError as error:
        return f"{path} cannot be written: {_words(error)}"
    if not makes_folders and not path.parent.is_dir():
        return f"{path} cannot be made: there is no folder {path.parent}"
    return _problem_with_folder(path.parent, path)


def _problem_with_folder(folder: Path, made: Path | None = None) -> str:
    """Why nothing can be made in a folder, which is made first if need be; empty where it can."""
    place = next(one for one in (folder, *folder.parents) if _is_there(one))
    try:
        with tempfile.TemporaryFile(dir=place):
            return ""
    except OSError as error:
        return f"{made or folder} cannot be made: {place}: {_words(error)}"


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # it may not be looked at, and so it is there
        return True


def _words(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
