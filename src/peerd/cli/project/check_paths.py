"""Whether a node can write where its configuration has it write; tried, as a mode says nothing of a read-only disk."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from peerd.cli.project.check_report import ConfigReport
from peerd.config import Settings
from peerd.config.address import is_sqlite
from peerd.store.connection.engines import with_driver

WRITABLE_PATH_REMEDY = "name a place that the user of the node may write to"


def check_writable_paths(settings: Settings, report: ConfigReport) -> None:
    """The run directory, the log file and the embedded database."""
    run_directory = settings.node.run_directory
    if problem := _folder_problem(run_directory):
        report.add_problem(("node", "run_directory"), problem, WRITABLE_PATH_REMEDY)
    if settings.logging.file is not None and (problem := _file_problem(settings.logging.file)):
        report.add_problem(("logging", "file"), problem, WRITABLE_PATH_REMEDY)
    if is_sqlite(settings.database.url) and not report.has_problem_in("database"):
        file = Path(with_driver(settings.database.url).database or "")
        if problem := _file_problem(file, makes_folders=False):
            report.add_problem(("database", "url"), problem, WRITABLE_PATH_REMEDY)


def _file_problem(path: Path, *, makes_folders: bool = True) -> str:
    """Why a file cannot be written, or made; empty where it can."""
    try:
        if path.exists():
            # Not opened: a process that closes a file loses its locks on it, also those of its SQLite connections.
            writable = path.is_file() and os.access(path, os.W_OK, effective_ids=True)
            return "" if writable else f"{path} cannot be written"
    except OSError as error:
        return f"{path} cannot be written: {_error_text(error)}"
    if not makes_folders and not path.parent.is_dir():
        return f"{path} cannot be made: there is no folder {path.parent}"
    return _folder_problem(path.parent, path)


def _folder_problem(folder: Path, path: Path | None = None) -> str:
    """Why nothing can be made in a folder, which is made first if need be; empty where it can."""
    existing = next(one for one in (folder, *folder.parents) if _exists(one))
    try:
        with tempfile.TemporaryFile(dir=existing):
            return ""
    except OSError as error:
        return f"{path or folder} cannot be made: {existing}: {_error_text(error)}"


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # it may not be looked at, and so it is there
        return True


def _error_text(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
